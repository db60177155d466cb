// SPDX-License-Identifier: Apache-2.0
#include "services/weights/file_places.h"

#include <utility>

namespace oxbow::weights {

std::shared_ptr<const TensorPlace> FilePlaces::Find(const std::string& name,
                                                    const io::TensorHeader& wanted) {
  if (!files_.Has(name)) return nullptr;
  const io::TensorHeader& stored = files_.headers().at(name);
  if (stored.dtype != wanted.dtype || stored.shape != wanted.shape) return nullptr;
  const std::string path = files_.FileOf(name);
  auto& file = opened_[path];
  if (file == nullptr) {
    auto opened = OpenedFile::Open(path);
    if (!opened.ok()) return nullptr;
    file = *std::move(opened);
  }
  return PlaceInFile(file, files_.OffsetOf(name), files_.BytesOf(name).size());
}

}  // namespace oxbow::weights
