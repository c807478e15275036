#include <utf8proc.h>

#include <cstdlib>
#include <map>
#include <memory>

#include "base/json.h"
#include "evidence/bundle.h"

namespace nmc::evidence {
namespace {

// Why a path could leave the folder it is unpacked to, or can't be a file's; "": it can't.
std::string why_unsafe(std::string_view name) {
  if (name.empty()) return "no name";
  if (!is_valid_utf8(name)) return "its name isn't UTF-8";
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return "a control character in its name";
  }
  if (name.find('\\') != std::string_view::npos) return "a backslash in its name";
  if (name.front() == '/') return "an absolute name";
  if (name.size() > 1 && name[1] == ':') return "a drive in its name";
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view step = name.substr(begin, end - begin);
    if (step == ".." || step == ".") return "a step that leaves its folder or stays in it";
    if (step.empty() && end != name.size()) return "an empty step in its name";
    begin = end + 1;
  }
  return "";
}

// Equal for names that some system takes for one: composed, and without case.
std::string folded(std::string_view name) {
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(name.data()), static_cast<utf8proc_ssize_t>(name.size()),
                   &out, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_CASEFOLD));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, &std::free);
  return size < 0 ? std::string(name) : std::string(reinterpret_cast<const char*>(out), static_cast<std::size_t>(size));
}

}  // namespace

std::vector<ContainerFault> name_faults(const std::vector<std::string>& names) {
  std::vector<ContainerFault> faults;
  std::map<std::string, std::string> known;    // by folded name
  std::map<std::string, std::string> parents;  // folded folders, and whose they are
  for (const std::string& name : names) {
    const std::string why = why_unsafe(name);
    if (!why.empty()) {
      faults.push_back({"path-escape", printable_name(name), why});
      continue;
    }
    std::string key = folded(name);
    while (key.ends_with('/')) key.pop_back();
    const auto [first, is_new] = known.try_emplace(key, name);
    if (!is_new)
      faults.push_back({"duplicate-name", name, fmt::format("the same file as {} on some system", first->second)});
    for (std::size_t at = key.find('/'); at != std::string::npos; at = key.find('/', at + 1))
      parents.try_emplace(key.substr(0, at), name);
  }
  for (const auto& [key, name] : known) {
    if (const auto parent = parents.find(key); parent != parents.end())
      faults.push_back({"duplicate-name", name, fmt::format("a file, and the folder of {}", parent->second)});
  }
  return faults;
}

std::string printable_name(std::string_view name) {
  const std::string quoted = dump_json(Json(std::string(name)));
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace nmc::evidence
