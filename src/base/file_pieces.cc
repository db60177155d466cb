// SPDX-License-Identifier: Apache-2.0
#include "base/file_pieces.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/descriptor.h"
#include "base/status_macros.h"

namespace oxbow {

absl::Status ReadInPieces(const std::filesystem::path& path,
                          const std::function<absl::Status(std::string_view piece)>& take) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value < 0) return ErrnoStatus("cannot open", path.string(), errno);
  std::vector<char> buffer(size_t{1} << 20);
  while (true) {
    const ssize_t got = ::read(file.value, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus("cannot read", path.string(), errno);
    if (got == 0) return absl::OkStatus();
    OXBOW_RETURN_IF_ERROR(take({buffer.data(), static_cast<size_t>(got)}));
  }
}

}  // namespace oxbow
