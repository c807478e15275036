#include "net/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "net/socket_options.h"

namespace nmc::net {
namespace {

constexpr int kSocketFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;

// Held while the file is looked at and replaced, so that of two servers that start at once one sees the other.
Result<UniqueFd> lock_folder_of(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return Failure(os_error("open", folder.string()));
  if (retry_on_eintr([&] { return ::flock(fd.get(), LOCK_EX); }) != 0) {
    return Failure(os_error("flock", folder.string()));
  }
  return fd;
}

// Removes what a dead server left at `path`.
Result<void> make_way(const std::string& path, const sockaddr_un& name) {
  struct stat file;
  if (::lstat(path.c_str(), &file) != 0) {
    if (errno == ENOENT) return {};
    return Failure(os_error("stat", path));
  }
  if (!S_ISSOCK(file.st_mode))
    return already_exists("can't listen on unix:{}: a file that is no socket is there", path);
  const UniqueFd probe(::socket(AF_UNIX, SOCK_SEQPACKET | kSocketFlags, 0));
  if (!probe) return Failure(os_error("socket", path));
  const bool refused =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 && errno == ECONNREFUSED;
  // Whatever else it says (connected, backlog full, another type), somebody has it.
  if (!refused) return already_exists("can't listen on unix:{}: a live server listens there", path);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return Failure(os_error("unlink", path));
  return {};
}

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

bool is_loopback(const sockaddr* name) {
  if (name->sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(name)->sin_addr.s_addr) >> 24) == 127;
  }
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(name)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&address);
}

Result<std::uint16_t> port_of(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) {
    return Failure(os_error("getsockname", "of a listening socket"));
  }
  return ntohs(name.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(name).sin_port
                                         : reinterpret_cast<const sockaddr_in6&>(name).sin6_port);
}

}  // namespace

Result<UnixListener> UnixListener::open(const std::string& path, mode_t mode) {
  NMC_ASSIGN_OR_RETURN(const sockaddr_un name, unix_socket_name(path));
  NMC_ASSIGN_OR_RETURN(const UniqueFd lock, lock_folder_of(path));
  NMC_RETURN_IF_ERROR(make_way(path, name));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | kSocketFlags, 0));
  if (!fd) return Failure(os_error("socket", path));
  // The file is made with the descriptor's mode, less the umask: at no moment is it open to more than it should be.
  if (::fchmod(fd.get(), mode) != 0) return Failure(os_error("fchmod", path));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    return Failure(os_error("bind", path));
  }
  UnixListener listener(std::move(fd), path);
  if (::stat(path.c_str(), &listener.file_) != 0) return Failure(os_error("stat", path));
  if (::chmod(path.c_str(), mode) != 0) return Failure(os_error("chmod", path));
  if (::listen(listener.fd_.get(), SOMAXCONN) != 0) return Failure(os_error("listen", path));
  return listener;
}

UnixListener::~UnixListener() {
  struct stat file;
  const bool ours = !path_.empty() && ::stat(path_.c_str(), &file) == 0 && same_file(file, file_);
  if (ours) ::unlink(path_.c_str());
}

Result<TcpListener> listen_tcp(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    return invalid_argument("can't listen on host \"{}\": {}", host, ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);

  TcpListener listener{.fd = UniqueFd(::socket(found->ai_family, SOCK_STREAM | kSocketFlags, 0))};
  const std::string name = fmt::format("{} port {}", host, port);
  if (!listener.fd) return Failure(os_error("socket", name));
  const int on = 1;
  (void)::setsockopt(listener.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener.fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(listener.fd.get(), SOMAXCONN) != 0) {
    if (errno != EADDRINUSE) return Failure(os_error("listen on", name));
    return already_exists("can't listen on {}: the port is in use by another process", name);
  }
  NMC_ASSIGN_OR_RETURN(listener.port, port_of(listener.fd.get()));
  listener.loopback = is_loopback(found->ai_addr);
  return listener;
}

}  // namespace nmc::net
