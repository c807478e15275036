"""mooncake.engine: what this version has of the transfer engine's names, and that it refuses in time."""

from conftest import finish_python


def test_the_names_that_clients_import_are_there():
    from mooncake.engine import TransferEngine, TransferOpcode

    assert (TransferOpcode.Read, TransferOpcode.Write) == (0, 1)
    assert TransferEngine().get_rpc_port() == 0


def test_an_engine_refuses_and_says_why():
    code = """
from mooncake.engine import TransferEngine
print(TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""))
"""
    done = finish_python(code)
    assert done.stdout == "-303\n"
    assert done.stderr.count("\n") == 1 and "mooncake.store" in done.stderr
