#include "services/learner/publisher.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/status_macros.h"
#include "io/tensor_torch.h"

namespace oxbow::learner {
namespace {

weights::TensorBytesByName BytesOf(const model::NamedTensors& tensors) {
  weights::TensorBytesByName bytes;
  for (const auto& [name, tensor] : tensors) bytes[name] = io::FromTorch(tensor.detach());
  return bytes;
}

}  // namespace

Publisher::Publisher(Options options, model::Policy& policy, Coordinator& coordinator,
                     weights::WeightChannelService& channel, LearnerMetrics& metrics)
    : options_(std::move(options)),
      policy_(policy),
      coordinator_(coordinator),
      channel_(channel),
      metrics_(metrics),
      frozen_(BytesOf(policy.frozen())) {}

absl::Status Publisher::Publish(PolicyVersion version, LearnerStep committed) {
  weights::Snapshot snapshot =
      weights::MakeSnapshot({.epoch = options_.epoch, .version = version, .step = committed},
                            frozen_, BytesOf(policy_.parameters().tensors()));
  *snapshot.manifest.mutable_probe() =
      weights::RunProbe(policy_.current(), options_.probe_shape, options_.probe_seed);
  // Known before it is announced, or a quick worker would name a version nobody has heard of.
  coordinator_.Published(version, committed);
  OXBOW_RETURN_IF_ERROR(channel_.Publish(std::move(snapshot)));
  metrics_.VersionIs(version.value, version.value);
  return absl::OkStatus();
}

}  // namespace oxbow::learner
