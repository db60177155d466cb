#include "core/model/exported_graph/shape_stand_ins.h"

#include <ATen/ATen.h>

#include <array>
#include <optional>
#include <string_view>

namespace oxbow::model::exported {
namespace {

using Arguments = const torch::jit::Stack&;

at::Tensor Where(Arguments in) {
  const at::Tensor& condition = in[0].toTensor();
  if (in[1].isTensor() && in[2].isTensor()) {
    return at::add(at::mul(in[1].toTensor(), condition), in[2].toTensor());
  }
  if (in[1].isTensor()) return at::mul(in[1].toTensor(), condition);
  return in[2].isTensor() ? at::mul(in[2].toTensor(), condition) : condition.to(at::kFloat);
}

at::Tensor IndexSelect(Arguments in) {
  const at::Tensor& self = in[0].toTensor();
  const int64_t dim = at::maybe_wrap_dim(in[1].toInt(), self.dim());
  std::vector<int64_t> shape = self.sizes().vec();
  shape[static_cast<size_t>(dim)] = in[2].toTensor().numel();
  return self.narrow(dim, 0, 1).expand(shape).clone();
}

at::Tensor Embedding(Arguments in) {
  std::vector<int64_t> shape = in[1].toTensor().sizes().vec();
  shape.push_back(in[0].toTensor().size(1));
  return in[0].toTensor().select(0, 0).expand(shape).clone();
}

struct Row {
  std::string_view op;
  at::Tensor (*run)(Arguments in);
};

constexpr std::array<Row, 8> kStandIns = {{
    {"aten::where", Where},
    {"aten::index_select", IndexSelect},
    {"aten::embedding", Embedding},
    {"aten::floor_divide",
     [](Arguments in) { return at::div(in[0].toTensor(), in[1].toTensor(), "floor"); }},
    {"aten::rsub", [](Arguments in) { return at::sub(in[1].toTensor(), in[0].toTensor()); }},
    {"aten::relu", [](Arguments in) { return at::clamp_min(in[0].toTensor(), 0); }},
    {"aten::flip", [](Arguments in) { return in[0].toTensor().clone(); }},
    {"aten::roll", [](Arguments in) { return in[0].toTensor().clone(); }},
}};

}  // namespace

bool StandIn(const std::string& op, torch::jit::Stack& stack) {
  for (const Row& row : kStandIns) {
    if (row.op != op) continue;
    at::Tensor result = row.run(stack);
    stack.assign(1, std::move(result));
    return true;
  }
  return false;
}

}  // namespace oxbow::model::exported
