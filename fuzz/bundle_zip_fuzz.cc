// An evidence bundle as anybody may have made it. The first byte says what the rest is: an archive; a bundle's files,
// put into an archive here so that headers and checksums are right; or files for which the manifest is made here, too,
// so that what lies behind its digests is reached. Whatever they are, findings are one line each, and an archive that
// passes is the only one there is for its files.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "evidence/bundle.h"
#include "evidence/bundle_manifest.h"

namespace {

using namespace nmc;
using namespace nmc::evidence;

using Files = std::map<std::string, std::string>;

// "name\ncontent\x1e" each.
Files files_in(std::string_view text) {
  Files files;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\x1e'), text.size());
    const std::string_view file = text.substr(0, end);
    const std::size_t name = std::min(file.find('\n'), file.size());
    files.emplace(file.substr(0, name), file.substr(std::min(name + 1, file.size())));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return files;
}

void seal(Files& files) {
  files.erase(kBundleManifest);
  std::map<std::string, FileIdentity> identities;
  for (const auto& [path, content] : files) identities.emplace(path, identity_of(content));
  std::vector<RegistryRecord> records;
  std::string_view index = files[kBundleIndex];
  for (std::size_t end; (end = index.find('\n')) != std::string_view::npos; index.remove_prefix(end + 1)) {
    if (auto record = parse_record(index.substr(0, end), "a line")) records.push_back(std::move(*record));
  }
  files[kBundleManifest] = manifest_text("smoke", identities, records);
}

void check_container(std::string_view archive) {
  const ZipContent content = read_zip(as_bytes(archive));
  if (!content.faults.empty()) return;
  NMC_ASSERT(content.complete);
  Files files;
  for (const auto& [name, bytes] : content.entries)
    files.emplace(name, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (files.size() != content.entries.size()) return;  // a name is there twice, which isn't the reader's to tell
  NMC_ASSERT(*write_zip(files) == archive, "without a fault, and not what is written of these entries");
}

void check_verification(std::string_view archive) {
  const BundleVerification verification = verify_archive(as_bytes(archive));
  for (const ContainerFault& fault : verification.findings) {
    NMC_ASSERT(!fault.kind.empty() && !fault.detail.empty());
    NMC_ASSERT(is_valid_utf8(fault.path) && fault.path.find('\n') == std::string::npos, "{}", fault.path);
  }
  if (!verification.is_verified()) return;
  NMC_ASSERT(verification.runs > 0 && read_zip(as_bytes(archive)).faults.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string archive(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 3 > 0) {
    Files files = files_in(archive);
    if (data[0] % 3 == 2) seal(files);
    auto written = write_zip(files);
    if (!written) return 0;
    archive = std::move(*written);
  }
  check_container(archive);
  check_verification(archive);
  return 0;
}
