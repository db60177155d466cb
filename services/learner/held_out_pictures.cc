// SPDX-License-Identifier: Apache-2.0
#include "services/learner/held_out_pictures.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "core/model/image_sampler.h"

namespace oxbow::learner {
namespace {

// The model until `ended`; from then on it computes nothing, and what is drawn is thrown away.
class UntilEnded final : public model::VelocityModel {
 public:
  UntilEnded(const model::VelocityModel& model, const std::function<bool()>& ended)
      : model_(model), ended_(ended) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const model::Conditioning& conditioning) const override {
    return ended_() ? at::zeros_like(x) : model_.Velocity(x, sigma, conditioning);
  }

  const model::VelocityModel& model_;
  const std::function<bool()>& ended_;
};

class DecoderUntilEnded final : public model::ImageDecoder {
 public:
  DecoderUntilEnded(const model::ImageDecoder& decoder, const std::function<bool()>& ended)
      : decoder_(decoder), ended_(ended) {}
  at::Tensor Decode(const at::Tensor& latents) const override {
    return ended_() ? at::zeros({latents.size(0), 1, 1, 3}, at::kByte) : decoder_.Decode(latents);
  }

 private:
  const model::ImageDecoder& decoder_;
  const std::function<bool()>& ended_;
};

absl::Status Cancelled() { return absl::CancelledError("the evaluation was cancelled"); }

}  // namespace

HeldOutPictures::HeldOutPictures(Options options, std::vector<v1::Prompt> prompts,
                                 ConditioningCache& conditioning,
                                 const model::ImageDecoder& decoder)
    : options_(std::move(options)),
      prompts_(std::move(prompts)),
      conditioning_(conditioning),
      decoder_(decoder) {}

std::vector<parallel::Share> HeldOutPictures::SharesOf(int ranks) const {
  const size_t unit = options_.whole_batches ? static_cast<size_t>(options_.at_once) : 1;
  const size_t units = (count() + unit - 1) / unit;
  const int drawing = static_cast<int>(std::min<size_t>(static_cast<size_t>(ranks), units));
  std::vector<parallel::Share> shares(static_cast<size_t>(ranks), {count(), count()});
  for (int rank = 0; rank < drawing; ++rank) {
    const parallel::Share of_units = parallel::ShareOf(units, rank, drawing);
    shares[static_cast<size_t>(rank)] = {of_units.begin * unit,
                                         std::min(count(), of_units.end * unit)};
  }
  return shares;
}

// Picture i shows prompt i mod N; its noise key names prompt and repetition, never the batch.
flow::NoiseKey HeldOutPictures::KeyOf(size_t place) const {
  return {.run_seed = options_.seed,
          .group = kEvaluationGroups + place % prompts_.size(),
          .sample = static_cast<uint32_t>(place / prompts_.size())};
}

absl::StatusOr<HeldOutPictures::Offered> HeldOutPictures::Offer() const {
  const int64_t together = options_.whole_batches
                               ? options_.at_once
                               : std::min(options_.leased_together, options_.at_once);
  Offered offered;
  for (size_t place = 0; place < count(); ++place) {
    if (place % static_cast<size_t>(together) == 0) {
      offered.leases.emplace_back().set_first_place(static_cast<uint32_t>(place));
    }
    OXBOW_ASSIGN_OR_RETURN(const ConditioningCache::Entry* entry,
                           conditioning_.Get(PromptOf(place)));
    v1::Lease::Picture& picture = *offered.leases.back().add_pictures();
    picture.mutable_conditioning()->set_sha256(entry->sent.sha256);
    picture.mutable_conditioning()->set_bytes(entry->sent.bytes->size());
    picture.set_noise_group(KeyOf(place).group);
    picture.set_noise_sample(KeyOf(place).sample);
    if (place < prompts_.size()) offered.conditioning.push_back(entry->sent.bytes);
  }
  return offered;
}

// The conditioning of thousands of prompts would take gigabytes, so each batch asks for its own.
absl::Status HeldOutPictures::Draw(const model::VelocityModel& model, const parallel::Share& share,
                                   const std::function<bool()>& ended, const Take& take) const {
  const flow::SamplingSpec spec = model::OdeSpec(options_.sigmas, options_.solver);
  const UntilEnded network(model, ended);
  const DecoderUntilEnded decoder(decoder_, ended);
  size_t end = share.begin;
  for (size_t first = share.begin; first < share.end; first = end) {
    end = std::min(share.end, first + static_cast<size_t>(options_.at_once));
    std::vector<model::ImageRequest> requests;
    for (size_t i = first; i < end; ++i) {
      if (ended()) return Cancelled();
      OXBOW_ASSIGN_OR_RETURN(const ConditioningCache::Entry* entry, conditioning_.Get(PromptOf(i)));
      requests.push_back(
          {.conditioning = model::MovedTo(entry->tensors, options_.device), .key = KeyOf(i)});
    }
    std::vector<Frames> drawn = model::SampleFrames(network, decoder, spec, requests,
                                                    options_.latent_shape, options_.at_once);
    if (ended()) return Cancelled();
    for (size_t i = first; i < end; ++i) {
      OXBOW_RETURN_IF_ERROR(take(i, std::move(drawn[i - first])));
    }
  }
  return absl::OkStatus();
}

}  // namespace oxbow::learner
