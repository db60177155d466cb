// SPDX-License-Identifier: Apache-2.0
// Images for people and scorers: noise in, 8-bit images out, by the plain ODE or any other
// spec.
//
// Evaluation, `oxbow sample` and `oxbow eval` all draw their images here.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/image8.h"
#include "core/flow/sampler.h"
#include "core/flow/schedule.h"
#include "core/model/image_decoder.h"
#include "core/model/velocity_model.h"

namespace oxbow::model {

// Deterministic sampling over these noise levels (T + 1 of them, the last 0).
flow::SamplingSpec OdeSpec(std::vector<double> sigmas,
                           flow::SolverKind solver = flow::SolverKind::kEuler);

// One image: what it is asked to show and which noise it starts from. A key's group names the
// prompt and its sample the image of that prompt, so that equal keys give equal images in every
// process and batch.
struct ImageRequest {
  // Rows of one, of the same sizes in all requests; images are drawn where it is.
  Conditioning conditioning;
  flow::NoiseKey key;
};

// `per_prompt` requests for each of the N rows of `conditioning`: groups 0 .. N - 1, samples
// 0 .. per_prompt - 1, in that order.
std::vector<ImageRequest> RequestsFor(const Conditioning& conditioning, int per_prompt,
                                      uint64_t seed);

// Samples of that latent shape that are drawn in one batch without much memory: 64 pictures, or as
// many videos as have 32,768 elements together, 1 to 64.
int64_t SamplesAtOnce(at::IntArrayRef latent_shape);

// The frames of each request's picture or video, in order, without gradients. `latent_shape` is of
// one sample. Runs at most `batch_max` requests at once; the result does not depend on it. Requires
// requests.
std::vector<std::vector<Image8>> SampleFrames(const VelocityModel& model,
                                              const ImageDecoder& decoder,
                                              const flow::SamplingSpec& spec,
                                              const std::vector<ImageRequest>& requests,
                                              at::IntArrayRef latent_shape, int64_t batch_max = 64);

}  // namespace oxbow::model
