// SPDX-License-Identifier: Apache-2.0
// The floating-point operations of matrix products, convolutions and attention, which are nearly
// all of a network's. Others count none.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

namespace oxbow::rehearsal {

// `name`: "aten::addmm.out". A multiplication and an addition are two.
double FlopOf(std::string_view name, const std::vector<at::Tensor>& reads,
              const std::vector<at::Tensor>& writes);

// Attention of q [B, H, N, D] and k [B, H, M, D].
double AttentionFlop(const at::Tensor& q, const at::Tensor& k);

// Convolution with a result [B, O, ...] of the weight [O, I / groups, ...].
double ConvolutionFlop(const at::Tensor& result, const at::Tensor& weight);

}  // namespace oxbow::rehearsal
