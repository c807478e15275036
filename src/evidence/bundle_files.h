// The files of a bundle where they lie, in an archive or in a folder, for whoever checks them. What can't be taken for
// a file is a fault, and nothing outside of the bundle is ever opened.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "evidence/zip.h"

namespace nmc::evidence {

// One thread.
class BundleFiles {
 public:
  virtual ~BundleFiles() = default;
  // All there are, those with a fault too, in any order; one that is there twice is told twice.
  const std::vector<std::string>& names() const { return names_; }
  // All names are known; else a fault says why not.
  bool complete() const { return complete_; }
  // Grows by what reading meets.
  const std::vector<ContainerFault>& faults() const { return faults_; }
  // Nothing: it isn't there, or there is a fault. At most kZipFileBytesMax.
  virtual std::optional<std::string> read(std::string_view name) = 0;

 protected:
  std::vector<std::string> names_;
  std::vector<ContainerFault> faults_;
  bool complete_ = true;
};

// `archive` outlives it.
std::unique_ptr<BundleFiles> files_of_archive(std::span<const std::byte> archive);

// No link below `folder` is followed, not even one that takes the place of a file between listing and reading. kIo,
// kPermissionDenied: the folder can't be listed.
Result<std::unique_ptr<BundleFiles>> files_of_folder(const Path& folder);

}  // namespace nmc::evidence
