// SPDX-License-Identifier: Apache-2.0
#include "io/prompts/encoder_files.h"

#include <ATen/ATen.h>

#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "core/model/exported_graph/exported_transformer.h"
#include "io/tensor_torch.h"

namespace oxbow::io {
namespace {

using model::exported::GraphParameter;

bool IsClip(const std::string& class_name) { return class_name.starts_with("CLIPText"); }

// The name in the graph of a tensor of a file.
std::string PublishedName(const std::string& class_name, const std::string& name) {
  if (IsClip(class_name)) {  // transformers 5 saves a CLIPTextModel without the prefix.
    const bool bare = name.starts_with("embeddings.") || name.starts_with("encoder.") ||
                      name.starts_with("final_layer_norm.");
    return bare ? "text_model." + name : name;
  }
  // Language models of whole ones, or with a picture's encoder, by whichever version saved them.
  for (const char* prefix :
       {"model.language_model.", "language_model.model.", "language_model.", "model."}) {
    if (name.starts_with(prefix)) return name.substr(std::string_view(prefix).size());
  }
  // T5's table of words has two names.
  return name == "encoder.embed_tokens.weight" ? "shared.weight" : name;
}

// The type that linear layers are stored in: one of 16 bits, or float32.
at::ScalarType StoredType(const EncoderFiles& files, const WeightFiles& weights) {
  for (const auto& [name, header] : weights.headers()) {
    const std::string known = PublishedName(files.component.class_name, name);
    for (const GraphParameter& parameter : files.network.graph.parameters) {
      if (parameter.name != known || !parameter.linear || parameter.float32) continue;
      const at::ScalarType type = ScalarTypeOf(header.dtype);
      return type == at::kHalf || type == at::kBFloat16 ? type : at::kFloat;
    }
  }
  return at::kFloat;
}

absl::StatusOr<model::NamedTensors> LoadWeights(const EncoderFiles& files,
                                                const WeightFiles& weights) {
  const model::Shapes expected = model::exported::ShapesOf(files.network.graph);
  const auto known = [&](const std::string& name) {
    return PublishedName(files.component.class_name, name);
  };
  OXBOW_ASSIGN_OR_RETURN(
      const model::NamedTensors stored,
      LoadTensors(weights, {.floats_as = std::nullopt, .wanted = [&](const std::string& name) {
                              return expected.contains(known(name));
                            }}));
  model::NamedTensors tensors;
  std::map<std::string, std::string> names;  // In the files.
  for (const auto& [name, tensor] : stored) {
    const auto [there, fresh] = tensors.emplace(known(name), tensor);
    const std::string first = names.emplace(known(name), name).first->second;
    if (fresh || at::equal(there->second, tensor)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " and ", first,
                     " differ, and an encoder has one such tensor: remove the one that is not "
                     "meant"));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<EncoderFiles> OpenEncoder(const DiffusersComponent& encoder) {
  OXBOW_ASSIGN_OR_RETURN(NetworkGraph network, FindNetworkGraph(encoder));
  OXBOW_ASSIGN_OR_RETURN(const auto headers, ReadComponentHeaders(encoder));
  const model::Shapes expected = model::exported::ShapesOf(network.graph);
  model::Shapes there;
  for (const auto& [name, header] : headers) {
    const std::string known = PublishedName(encoder.class_name, name);
    if (expected.contains(known)) there.emplace(known, header.shape);
  }
  OXBOW_RETURN_IF_ERROR(DataError(model::CheckFit(expected, there), encoder.directory.string()));
  return EncoderFiles{.component = encoder, .network = std::move(network)};
}

absl::StatusOr<std::unique_ptr<model::TextEncoder>> LoadEncoder(const EncoderFiles& files,
                                                                const TextEncoders::Options& to) {
  OXBOW_ASSIGN_OR_RETURN(const WeightFiles weights, OpenComponentWeights(files.component));
  at::ScalarType type = to.dtype;
  if (type == at::kFloat && KeepsStoredType(files.component)) type = StoredType(files, weights);
  const auto made = [&]() -> absl::StatusOr<std::unique_ptr<model::TextEncoder>> {
    OXBOW_ASSIGN_OR_RETURN(model::NamedTensors tensors, LoadWeights(files, weights));
    return model::TextEncoder::Make(files.network.graph, std::move(tensors),
                                    {.device = to.device, .compute = type});
  };
  auto encoder = made();
  if (!encoder.ok()) return DataError(encoder.status(), files.component.directory.string());
  return encoder;
}

bool KeepsStoredType(const DiffusersComponent& encoder) { return !IsClip(encoder.class_name); }

}  // namespace oxbow::io
