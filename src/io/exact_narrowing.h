// SPDX-License-Identifier: Apache-2.0
// Float32 values in 16 bits, where that loses nothing. What text encoders say about a prompt was
// computed in 16 bits as a rule, and then needs half the room on disk and on the wire.
#pragma once

#include <ATen/core/Tensor.h>

namespace oxbow::io {

// The values as f16 if each is one, else as bf16 if each is one, else as they are. A tensor of
// another type than float32 is returned as it is. Converting the result back to float32 gives the
// same bits, but for the payload of values that are not numbers: a tensor with one stays float32.
at::Tensor NarrowedExactly(const at::Tensor& values);

}  // namespace oxbow::io
