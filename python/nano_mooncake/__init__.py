"""The programs in module form: `python -m nano_mooncake COMMAND`, and `python -m nano_mooncake.demo`."""
