// SPDX-License-Identifier: Apache-2.0
// Bytes of frozen tensors that stay where a learner or worker has them anyway, in the model's files
// or in the network's memory, until somebody asks for a chunk of them: no second copy is held for
// those who have not come yet.
//
// Files are read by offset and not through a map: a file that was cut short is then an error, where
// a map would end the process. A file that another one has replaced is still the old one here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "io/weight_files.h"

namespace oxbow::weights {

// Where all bytes of one tensor are. Thread-safe.
class TensorPlace {
 public:
  virtual ~TensorPlace() = default;
  virtual uint64_t size() const = 0;
  // Fills `to` with the bytes from `begin` on, which size() has. kDataLoss names a file that has
  // fewer.
  virtual absl::Status Read(uint64_t begin, std::span<char> to) const = 0;
  virtual std::string name() const = 0;  // For messages.
};

// The place of the frozen tensor of that name in a snapshot; null if there is none.
using PlaceOfTensor = std::function<std::shared_ptr<const TensorPlace>(const std::string& name)>;

// In memory that keeps its bytes while `owner` lives.
std::shared_ptr<const TensorPlace> PlaceInMemory(std::string_view bytes,
                                                 std::shared_ptr<const void> owner);

// In a file that stays open.
struct OpenedFile {
  static absl::StatusOr<std::shared_ptr<const OpenedFile>> Open(const std::string& path);
  std::string path;
  Descriptor descriptor;
};
std::shared_ptr<const TensorPlace> PlaceInFile(std::shared_ptr<const OpenedFile> file,
                                               uint64_t begin, uint64_t size);

// A chunk that is read when it is asked for.
struct PlacedChunk {
  std::shared_ptr<const TensorPlace> place;
  uint64_t begin = 0;
  uint64_t bytes = 0;
  std::string xxh3;

  // kDataLoss, naming the place, if other bytes are there than when the chunk was made.
  absl::StatusOr<std::shared_ptr<const std::string>> Read() const;
};
using PlacedChunks = std::map<std::string, PlacedChunk>;  // Key: 32 raw bytes of SHA-256.

// Shared: snapshots that have the chunk, and the store.
using Placed = std::shared_ptr<const PlacedChunk>;
using PlacedByHash = std::map<std::string, Placed>;

// Places of tensors in a component's weight files.
class FilePlaces {
 public:
  explicit FilePlaces(const io::WeightFiles& files) : files_(files) {}  // It outlives this.

  // Null unless a file has a tensor of that name, type and shape. Each file is opened once, and
  // stays open while a place in it lives.
  std::shared_ptr<const TensorPlace> Find(const std::string& name, const io::TensorHeader& wanted);

 private:
  const io::WeightFiles& files_;
  std::map<std::string, std::shared_ptr<const OpenedFile>> opened_;
};

}  // namespace oxbow::weights
