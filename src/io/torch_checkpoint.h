// SPDX-License-Identifier: Apache-2.0
// Tensors of a `.pt` or `.pth` file of torch.save, read without running what is in it.
//
//   NAME/data.pkl    the pickle of a dict: names to tensors
//   NAME/data/0 ..   the bytes of a storage; tensors are views of storages
//   NAME/byteorder   "little"; absent in older files
//
// Files of torch before 1.6 have the same in another order (io/legacy_checkpoint.h).
//
// A pickle is a program, and loading one in Python runs it. Here nothing is run: a closed
// interpreter (pickle_machine.h) knows dicts, numbers and texts, and of all functions only those
// that a state dict needs: collections.OrderedDict, torch._utils._rebuild_tensor_v2,
// torch._utils._rebuild_parameter, and storage types by name. A file that names anything else is
// refused with that name.
//
// The tensors are those of the outermost dict or, if that has one, of its `state_dict`. Other
// values there, such as a number of epochs, are skipped. Storages are read as they are stored:
// checksums of the archive are not looked at.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/safetensors.h"

namespace oxbow::io {

// All tensors together take at most this many times the file: a few may share a storage.
inline constexpr uint64_t kSharedStoragesMax = 4;

// A tensor as part of a storage; offset and strides count elements.
struct StorageView {
  std::string_view storage;
  uint64_t offset = 0;
  std::vector<int64_t> strides;
};

class TorchCheckpoint {
 public:
  // `file` outlives the result. kDataLoss if it is truncated or corrupt, kFailedPrecondition if it
  // holds what is not read here (the message names it). Messages are one line and name `name`.
  static absl::StatusOr<TorchCheckpoint> Parse(std::string_view file, const std::string& name);

  const std::map<std::string, TensorHeader>& headers() const { return headers_; }

  // Keys whose values are no tensors.
  const std::vector<std::string>& skipped() const { return skipped_; }

  // A tensor's elements in row-major order, whatever its strides. Dies if there is no such tensor.
  std::string Read(const std::string& tensor) const;

 private:
  static absl::StatusOr<TorchCheckpoint> ParseUnnamed(std::string_view file);
  absl::Status CheckSizes(uint64_t file_bytes) const;

  std::map<std::string, TensorHeader> headers_;
  std::map<std::string, StorageView> views_;
  std::vector<std::string> skipped_;
};

struct ConvertedWeights {
  size_t tensors = 0;
  uint64_t bytes = 0;
  std::vector<std::string> skipped;
  std::string renamed;  // Whose names became those that oxbow reads; empty if names are kept.
};

// Writes the tensors of such a file as safetensors, for servers that load nothing else. Those of
// mmdetection's Mask2Former get transformers' names (io/mask2former_names.h). `to`
// appears whole or not at all. Errors of Parse and of reading and writing files.
absl::StatusOr<ConvertedWeights> ConvertTorchCheckpoint(const std::filesystem::path& from,
                                                        const std::filesystem::path& to);

}  // namespace oxbow::io
