// nano-mooncake: every command in one program.
#include <string>
#include <vector>

#include "cli/program.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  return nmc::cli::run_program(arguments);
}
