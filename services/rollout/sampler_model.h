// SPDX-License-Identifier: Apache-2.0
// The policy a worker samples with: made from the first verified snapshot, updated by later ones.
//
// Nothing is in use before its probe has been compared with the learner's; what was in use stays
// so when a later snapshot is refused.
//
// Frozen weights on the CPU are in memory once: the snapshot's chunks get the network's memory
// as their place (FrozenPlaces).
//
// There is room for one set of weights where the model computes: those in use, or those of an
// evaluation, which stay loaded until groups need the ones in use. What torch throws is a status
// here: kResourceExhausted if memory is full, else kInternal. Owned by the torch thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/image_decoder.h"
#include "core/model/lent_base.h"
#include "core/model/policy.h"
#include "services/rollout/conditioning_source.h"
#include "services/rollout/lender_watch.h"
#include "services/rollout/run_spec.h"
#include "services/weights/probe.h"
#include "services/weights/weight_follower.h"

namespace oxbow::rollout {

// Has a chunk read from there from now on, and held no longer.
using PlaceChunk = std::function<void(const std::string& sha256, const weights::Placed& placed)>;

// Frozen weights that a worker has in host memory once: where its network keeps them.
//
// A snapshot comes as chunks in memory. When a frozen tensor of it is in the memory of the network,
// which never changes while somebody reads it, its chunks get that place: neither the snapshot nor
// the store that serves other workers holds them any more. So the chunks of a base go while its
// network is made, one tensor after another.
class FrozenPlaces {
 public:
  // `snapshot` outlives this. `place` tells all others that hold its chunks; it may be null.
  FrozenPlaces(weights::VerifiedSnapshot& snapshot, PlaceChunk place);
  ~FrozenPlaces();

  // The tensor of that name in the snapshot is in this memory for good. What is not on the CPU, or
  // has other bytes than the chunks, changes nothing.
  void Add(const std::string& name, const at::Tensor& kept);

 private:
  weights::VerifiedSnapshot& snapshot_;
  const PlaceChunk place_;
  std::map<std::string, const v1::TensorManifest*> entries_;
  uint64_t freed_ = 0;  // Bytes since freed pages went back to the system.
};

class SamplerModel {
 public:
  // `place` is told where the chunks of what is frozen are; it may be null.
  explicit SamplerModel(const RunSpec& spec, PlaceChunk place = nullptr);

  // Loads a snapshot and probes it. `comparison` says how the probe came out. On error the weights
  // in use are as before; if not even they can be loaded again, nothing is ready().
  // kFailedPrecondition if the frozen part is another than that of the snapshot in use: within an
  // epoch it never changes. kUnavailable if a chunk is no longer where it was placed.
  absl::Status Apply(weights::VerifiedSnapshot snapshot, weights::ProbeComparison& comparison);

  // The network of the weights in use, or of those of an evaluation: loads them unless they are
  // loaded. It lives until the next call here. After an error the next call loads what it needs.
  // Both require ready().
  absl::StatusOr<const model::VelocityModel*> ForGroups();
  absl::StatusOr<const model::VelocityModel*> ForPictures(const EvaluatedWeights::Weights& weights);

  bool ready() const { return version_.has_value(); }
  PolicyVersion version() const { return *version_; }               // Requires ready().
  const model::ImageDecoder& decoder() const { return *decoder_; }  // Requires ready().

 private:
  enum class Loaded { kInUse, kEvaluated, kNothing };

  absl::Status Load(weights::VerifiedSnapshot& snapshot);
  absl::Status LoadTrained(const weights::VerifiedSnapshot& snapshot);
  absl::Status Make(weights::VerifiedSnapshot& snapshot);
  std::shared_ptr<model::BorrowedBase> Borrow();
  void GoBack(const model::NamedTensors& copy);
  void KeepTrained(const weights::VerifiedSnapshot& snapshot);
  bool InUse(const weights::VerifiedSnapshot& other) const;
  bool keeps_trained() const { return trained_.manifest.tensors_size() > 0; }
  absl::Status Probe(const v1::SnapshotManifest::Probe& expected,
                     weights::ProbeComparison& comparison) const;

  const RunSpec& spec_;
  const PlaceChunk place_;
  std::unique_ptr<LenderWatch> lender_;  // Null: nothing is borrowed.
  // Null until a snapshot was accepted.
  std::unique_ptr<model::Policy> policy_;
  std::unique_ptr<model::ImageDecoder> decoder_;
  std::optional<PolicyVersion> version_;
  std::string base_sha256_;  // The hash of the frozen part in use.
  // The trained part in use, in the chunks that the worker holds of it anyway. Empty unless the
  // learner leases held-out pictures.
  weights::VerifiedSnapshot trained_;
  Loaded loaded_ = Loaded::kNothing;
  EvaluatedWeights::Weights evaluated_;  // Those that are loaded.
};

}  // namespace oxbow::rollout
