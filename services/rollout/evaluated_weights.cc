// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/evaluated_weights.h"

#include <utility>

#include "base/status_macros.h"
#include "services/weights/snapshot.h"

namespace oxbow::rollout {
namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 40;
constexpr int kAppliedMax = 2;

}  // namespace

EvaluatedWeights::EvaluatedWeights(ConditioningSource& source,
                                   std::function<weights::Chunk(const std::string&)> held)
    : source_(source), held_(std::move(held)) {}

absl::StatusOr<EvaluatedWeights::Weights> EvaluatedWeights::Get(
    const v1::Lease::Pictures& pictures) {
  absl::MutexLock one(&fetching_);  // The next caller finds what this one has fetched.
  {
    absl::MutexLock lock(&mutex_);
    applied_ = 0;
    if (last_ != nullptr && sha256_ == pictures.weights().sha256()) return last_;
    last_.reset();
  }
  OXBOW_ASSIGN_OR_RETURN(Weights fetched, Fetch(pictures));
  absl::MutexLock lock(&mutex_);
  sha256_ = pictures.weights().sha256();
  last_ = fetched;
  return fetched;
}

absl::StatusOr<EvaluatedWeights::Weights> EvaluatedWeights::Fetch(
    const v1::Lease::Pictures& pictures) {
  OXBOW_ASSIGN_OR_RETURN(
      const weights::Chunk manifest,
      source_.Get(
          {.sha256 = pictures.weights().sha256(), .bytes = pictures.weights().bytes(), .xxh3 = ""},
          pictures.peers()));
  auto fetched = std::make_shared<weights::VerifiedSnapshot>();
  if (!fetched->manifest.ParseFromString(*manifest)) {
    return absl::DataLossError("the manifest of an evaluation's weights is no message");
  }
  OXBOW_RETURN_IF_ERROR(weights::CheckManifest(fetched->manifest, kBytesMax));
  std::vector<ConditioningSource::Content> wanted;
  for (const weights::ChunkSize& chunk : weights::ChunksOf(fetched->manifest)) {
    if (weights::Chunk bytes = held_(chunk.sha256); bytes != nullptr) {
      fetched->chunks.emplace(chunk.sha256, std::move(bytes));
    } else {
      wanted.push_back(chunk);
    }
  }
  OXBOW_ASSIGN_OR_RETURN(weights::ChunksByHash chunks, source_.GetAll(wanted, pictures.peers()));
  fetched->chunks.merge(chunks);
  return fetched;
}

void EvaluatedWeights::Applied() {
  absl::MutexLock lock(&mutex_);
  if (++applied_ >= kAppliedMax) last_.reset();
}

}  // namespace oxbow::rollout
