// SPDX-License-Identifier: Apache-2.0
// Places of tensors in a component's weight files.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "io/weight_files.h"
#include "services/weights/tensor_place.h"

namespace oxbow::weights {

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
