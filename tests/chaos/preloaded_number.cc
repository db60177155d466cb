// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/preloaded_number.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/status_macros.h"

namespace oxbow::chaos {

absl::StatusOr<std::unique_ptr<PreloadedNumber>> PreloadedNumber::Make(
    const std::string& library, const std::string& variable, const std::filesystem::path& file) {
  if (library.empty()) return absl::UnimplementedError("nothing to preload in this build");
  const Descriptor opened(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (opened.value < 0) return ErrnoStatus("cannot open", file.string(), errno);
  const int64_t none = 0;
  OXBOW_RETURN_IF_ERROR(
      WriteAll(opened.value, {reinterpret_cast<const char*>(&none), sizeof none}, file.string()));
  void* mapped =
      mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, opened.value, 0);
  if (mapped == MAP_FAILED) return ErrnoStatus("cannot map", file.string(), errno);
  return std::unique_ptr<PreloadedNumber>(
      new PreloadedNumber({"LD_PRELOAD=" + library, variable + "=" + file.string()},
                          static_cast<std::atomic<int64_t>*>(mapped)));
}

PreloadedNumber::~PreloadedNumber() { munmap(number_, sizeof(int64_t)); }

}  // namespace oxbow::chaos
