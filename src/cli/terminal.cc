#include "cli/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "base/syscall.h"
#include "cli/output.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";  // a screen of its own, no cursor
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[H";
constexpr std::string_view kClearRestOfLine = "\x1b[K";
constexpr std::string_view kClearBelow = "\x1b[J";

}  // namespace

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

bool wants_colours() {
  const char* off = std::getenv("NO_COLOR");
  return is_terminal(STDOUT_FILENO) && (off == nullptr || *off == '\0');
}

TerminalSize terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

Result<std::unique_ptr<Screen>> Screen::open() {
  termios before{};
  if (!is_terminal(STDOUT_FILENO) || ::tcgetattr(STDIN_FILENO, &before) != 0) {
    return invalid_argument("standard input and output: expected a terminal; --once prints one frame without");
  }
  termios keys = before;
  keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  keys.c_cc[VMIN] = 1;
  keys.c_cc[VTIME] = 0;
  if (::tcsetattr(STDIN_FILENO, TCSAFLUSH, &keys) != 0) return Failure(os_error("tcsetattr", "standard input"));
  std::unique_ptr<Screen> screen(new Screen(before));
  NMC_RETURN_IF_ERROR(write_standard_output(kEnter));
  return screen;
}

Screen::~Screen() {
  static_cast<void>(write_standard_output(kLeave));
  static_cast<void>(::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_));
}

Result<void> Screen::draw(std::string_view lines) {
  std::string frame(kHome);
  std::size_t rows = terminal_size().rows;
  while (!lines.empty() && rows > 0) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    frame += lines.substr(0, end);
    frame += kClearRestOfLine;
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (--rows > 0) frame += "\r\n";  // after the last row it would scroll
  }
  return write_standard_output(frame + std::string(kClearBelow));
}

std::optional<char> Screen::key(Nanos wait) {
  pollfd input = {has_input_ ? STDIN_FILENO : -1, POLLIN, 0};  // -1: only waits
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
  if (::poll(&input, 1, static_cast<int>(ms)) <= 0) return std::nullopt;
  char key = 0;
  if (::read(STDIN_FILENO, &key, 1) == 1) return key;
  has_input_ = false;
  return std::nullopt;
}

}  // namespace nmc::cli
