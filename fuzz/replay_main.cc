// Runs a fuzz target over files instead of under libFuzzer, so that every build's tests replay the corpora: an input
// that once crashed stays fixed, with whatever compiler.
//
//   replay_<name> FOLDER...     each regular file below the folders, and the empty input
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) try {
  std::size_t files = 0;
  LLVMFuzzerTestOneInput(nullptr, 0);
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      // Named before it runs: after a crash the last line tells which file it was.
      std::printf("%s, %zu bytes\n", entry.path().c_str(), bytes.size());
      std::fflush(stdout);
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++files;
    }
  }
  std::printf("%zu files\n", files);
  if (files == 0) std::fputs("replay: no file found, expected a corpus\n", stderr);
  return files == 0 ? 2 : 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "replay: %s\n", error.what());
  return 2;
}
