// SPDX-License-Identifier: Apache-2.0
// An adapter of a smaller rank, or on fewer modules, as one of a run's size.
#pragma once

#include "core/model/named_tensors.h"

namespace oxbow::model {

// `adapter` with what it does not have out of `fresh`: modules, and rows of A and columns of B past
// its rank. B of a fresh adapter is zero there, so that the products stay those of `adapter`, and A
// is not, so that they can learn. What does not fit `fresh` stays as it is.
NamedTensors CompletedAdapter(const NamedTensors& fresh, const NamedTensors& adapter);

}  // namespace oxbow::model
