// SPDX-License-Identifier: Apache-2.0
// Frozen weights of linear layers as int8: half the memory of bfloat16. Activations keep their
// type (W8A16).
//
// Symmetric, with a scale for each row: w ~ s q with q in [-127, 127] and s = max |w| / 127 over
// the row, so |w - s q| <= s / 2. The scale has the type of products, and is rounded up to it. Then
// s q rounded to that type is the weight which products read: a network of int8 weights computes,
// bit for bit, what one with the weights PlainWeight() computes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "core/model/architecture.h"

namespace oxbow::model {

// `{module}.weight` is int8 [out, in], `{module}.weight_scale` [out, 1].
std::string ScaleNameOf(const std::string& weight);

struct Int8Weight {
  at::Tensor values;
  at::Tensor scale;
};

// A weight [out, in] of any floating type, on its device. A row of zeros has the scale 1.
Int8Weight ToInt8(const at::Tensor& weight, at::ScalarType products);

// [out, in] in the type of the scale.
at::Tensor PlainWeight(const Int8Weight& weight);

// rows W^T + bias in the type of the scale. rows [n, in]; bias [out] or undefined. No copy of the
// plain weight outlives the call: the backward pass makes it again. Only rows have a gradient.
at::Tensor Int8Product(const at::Tensor& rows, const Int8Weight& weight, const at::Tensor& bias);

// The weights that are kept as int8: of linear layers whose products are not float32 by the
// architecture's word, and not of very small ones.
std::set<std::string> Int8Names(const Architecture& architecture);

// Takes the scales of int8 weights out of `tensors`. kInvalidArgument names a scale that is
// missing, alone or misshapen, and an int8 weight that is none of `names`.
absl::StatusOr<NamedTensors> TakeScales(NamedTensors& tensors, const std::set<std::string>& names);

}  // namespace oxbow::model
