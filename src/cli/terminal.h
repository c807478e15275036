// The terminal as a screen to draw on.
#pragma once

#include <termios.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace nmc::cli {

struct TerminalSize {
  std::size_t columns = 80, rows = 24;
  bool operator==(const TerminalSize&) const = default;
};

bool is_terminal(int fd);
// Whether colours are wanted on standard output: it is a terminal and NO_COLOR isn't set.
bool wants_colours();
// Of standard output; 80 x 24 where it is none.
TerminalSize terminal_size();

// From construction to destruction keys come one by one without echo, and what is drawn is on a screen of its own.
// Not thread-safe; one at a time.
class Screen {
 public:
  // kInvalidArgument: standard input or output is no terminal.
  static Result<std::unique_ptr<Screen>> open();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // `lines` as render_lines() makes them; rows beyond the screen's are cut off.
  Result<void> draw(std::string_view lines);
  // Waits at most so long for a key.
  std::optional<char> key(Nanos wait);

 private:
  explicit Screen(const termios& before) : before_(before) {}
  const termios before_;
  bool has_input_ = true;
};

}  // namespace nmc::cli
