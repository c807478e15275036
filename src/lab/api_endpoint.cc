#include "lab/api_endpoint.h"

#include <fcntl.h>
#include <poll.h>

#include <array>

#include "lab/http_answer.h"
#include "net/dial.h"
#include "net/tls_connect.h"

namespace nmc::lab {
namespace {

constexpr std::string_view kForm = "expected http[s]://HOST[:PORT][/PREFIX]";
constexpr std::size_t kBodyBytesMax = 64 << 20;

bool is_printable(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f) return false;
  return true;
}

Result<void> wait_for(int fd, short events, Nanos until) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - real_clock().now()).count();
    if (left <= 0) return deadline_exceeded("no whole answer in time");
    pollfd waiting = {fd, events, 0};
    const int ready = retry_on_eintr([&] { return ::poll(&waiting, 1, static_cast<int>(left)); });
    if (ready < 0) return Failure(os_error("poll", "a connection"));
    if (ready > 0) return {};
  }
}

Result<net::HttpResponse> exchange(net::TcpStream& stream, std::string request, Nanos until) {
  for (std::size_t sent = 0; sent < request.size();) {
    const iovec piece{request.data() + sent, request.size() - sent};
    const net::StreamIo io = stream.write({&piece, 1});
    if (io.bytes == 0 && !io.would_block()) return unavailable("the connection broke while the request was sent");
    sent += io.bytes;
    if (io.bytes == 0) NMC_RETURN_IF_ERROR(wait_for(stream.fd(), POLLOUT, until));
  }
  HttpAnswer answer;
  net::HttpResponse response;
  std::array<char, 16 << 10> bytes;
  while (!answer.is_done()) {
    const iovec piece{bytes.data(), bytes.size()};
    const net::StreamIo io = stream.read({&piece, 1});
    if (io.would_block()) {
      NMC_RETURN_IF_ERROR(wait_for(stream.fd(), POLLIN, until));
      continue;
    }
    if (io.bytes == 0) {
      NMC_RETURN_IF_ERROR(answer.close());
      break;
    }
    NMC_RETURN_IF_ERROR(answer.add({bytes.data(), io.bytes}));
    response.body += answer.take_body();
    if (response.body.size() > kBodyBytesMax) return resource_exhausted("larger than {} bytes", kBodyBytesMax);
  }
  response.status = answer.status();
  response.content_type = answer.header("content-type");
  return response;
}

}  // namespace

Result<ApiEndpoint> ApiEndpoint::parse(std::string_view text) {
  ApiEndpoint endpoint;
  std::string_view rest = text;
  const auto malformed = [&](std::string_view why) { return invalid_argument("\"{}\": {}, {}", text, why, kForm); };
  if (!is_printable(text)) return malformed("a space or control character in it");
  endpoint.tls = text.starts_with("https://");
  if (!endpoint.tls && !text.starts_with("http://")) return malformed("no such scheme");
  rest.remove_prefix(endpoint.tls ? 8 : 7);
  const std::size_t slash = std::min(rest.find_first_of("/?#"), rest.size());
  std::string authority(rest.substr(0, slash));
  const std::size_t host_end = authority.starts_with('[') ? authority.find(']') : 0;
  if (authority.find(':', host_end) == authority.npos) authority += endpoint.tls ? ":443" : ":80";
  auto address = net::Address::parse(authority);
  if (!address || address->carrier != net::Carrier::kTcp || address->host.find('@') != std::string::npos)
    return malformed("no host, or no port from 1 to 65535");
  endpoint.address = std::move(*address);
  std::string_view base = rest.substr(slash);
  if (base.find_first_of("?#") != base.npos) return malformed("a query in it");
  while (base.ends_with('/')) base.remove_suffix(1);
  if (base.ends_with("/v1")) base.remove_suffix(3);
  endpoint.base = base;
  return endpoint;
}

std::string ApiEndpoint::to_string() const {
  return fmt::format("{}://{}{}", tls ? "https" : "http", address.to_string(), base);
}

Result<net::TcpStream> ApiEndpoint::connect(Nanos until) const {
  NMC_ASSIGN_OR_RETURN(UniqueFd fd, net::dial(address, until));
  if (::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK) != 0)
    return Failure(os_error("fcntl", to_string()));
  net::TcpStream stream(std::move(fd));
  if (tls) NMC_RETURN_IF_ERROR(net::secure_client(stream, address, authorities, until));
  return stream;
}

std::string ApiEndpoint::format_request(std::string_view method, std::string_view path,
                                        const std::vector<net::HttpHeader>& headers, std::string_view body) const {
  std::string text =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\n", method, base, path, address.to_string());
  for (const net::HttpHeader& header : headers) text += fmt::format("{}: {}\r\n", header.name, header.value);
  if (!body.empty()) text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  text += "\r\n";
  text += body;
  return text;
}

Result<net::HttpResponse> api_get(const ApiEndpoint& endpoint, std::string_view path,
                                  const std::vector<net::HttpHeader>& headers, Nanos timeout) {
  const Nanos until = real_clock().now() + timeout;
  auto stream = endpoint.connect(until);
  if (!stream) return Failure(std::move(stream).error());
  auto response = exchange(*stream, endpoint.format_request("GET", path, headers, ""), until);
  if (!response) return Failure(std::move(response).error().with_context(endpoint.to_string() + std::string(path)));
  return response;
}

}  // namespace nmc::lab
