#include "core/model/attention.h"

#include <ATen/ATen.h>

namespace oxbow::model {

at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  const at::Tensor o = at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2),
                                                        v.transpose(1, 2), {}, 0.0, causal);
  return o.transpose(1, 2).reshape({q.size(0), q.size(1), q.size(2) * q.size(3)});
}

}  // namespace oxbow::model
