// SPDX-License-Identifier: Apache-2.0
// The weights of a policy as bytes, one tensor after another, for SnapshotMaker: a publication
// takes the memory of its chunks and of one tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/model/named_tensors.h"
#include "core/parallel/host_copy.h"
#include "io/diffusers_directory.h"
#include "services/weights/snapshot_maker.h"
#include "services/weights/tensor_place.h"

namespace oxbow::learner {

using TensorShapes = std::map<std::string, std::vector<int64_t>>;

TensorShapes ShapesOf(const model::NamedTensors& tensors);

// The frozen part: the policy's and the decoder's, which has a prefix. Both outlive the source.
weights::TensorSource FrozenSource(const model::NamedTensors& policy,
                                   const model::NamedTensors& decoder);

// Where the bytes of the frozen part are already, so that none are held for workers: of a tensor on
// the CPU in its own memory, of others in the model's file, if that has them in the same type. Both
// maps outlive the answers' use. No files: `components` may be empty.
weights::PlaceOfTensor PlacesOfFrozen(const model::NamedTensors& policy,
                                      const model::NamedTensors& decoder,
                                      const io::DiffusersComponents& components);

// The tensors of `trained`, which is flat and in the order of the names of `shapes`. The copy's
// memory is given back as it is read. Both outlive the source, which can be used once.
weights::TensorSource TrainedSource(parallel::HostCopy& trained, const TensorShapes& shapes);

}  // namespace oxbow::learner
