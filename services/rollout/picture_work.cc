// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/picture_work.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/model/device_memory.h"
#include "core/model/image_sampler.h"
#include "rpc/channel.h"
#include "rpc/convert_torch.h"
#include "rpc/retry.h"

namespace oxbow::rollout {
namespace {

// The last limit of a stream that always moves.
constexpr absl::Duration kSendAtMost = absl::Hours(1);

}  // namespace

absl::StatusOr<model::Conditioning> ConditioningFrom(const RunSpec& spec, const std::string& sent) {
  v1::Conditioning message;
  if (!message.ParseFromString(sent)) {
    return absl::InvalidArgumentError("the conditioning is no message");
  }
  return rpc::ConditioningFromProto(message, spec.architecture->conditioning());
}

std::vector<ReadyLease> TakePictures(std::vector<ReadyLease>& batch) {
  const auto first = std::stable_partition(batch.begin(), batch.end(), [](const ReadyLease& ready) {
    return ready.pictures == nullptr;
  });
  std::vector<ReadyLease> pictures(std::make_move_iterator(first),
                                   std::make_move_iterator(batch.end()));
  batch.erase(first, batch.end());
  return pictures;
}

PictureWork::PictureWork(const RunSpec& spec, std::string worker_id,
                         v1::Coordinator::Stub& coordinator, ConditioningSource& source,
                         std::function<weights::Chunk(const std::string&)> held, const Clock& clock)
    : spec_(spec),
      worker_id_(std::move(worker_id)),
      coordinator_(coordinator),
      source_(source),
      weights_(source, std::move(held)),
      guard_(clock) {}

absl::StatusOr<ReadyLease> PictureWork::Prepare(v1::Lease lease) {
  if (spec_.held_out.sigmas.empty()) {
    return absl::InvalidArgumentError("the learner has not said how held-out pictures are drawn");
  }
  auto pictures = std::make_shared<PicturesToDraw>();
  OXBOW_ASSIGN_OR_RETURN(pictures->weights, weights_.Get(lease.pictures()));
  for (const v1::Lease::Picture& picture : lease.pictures().pictures()) {
    OXBOW_ASSIGN_OR_RETURN(weights::Chunk sent,
                           source_.Get({.sha256 = picture.conditioning().sha256(),
                                        .bytes = picture.conditioning().bytes(),
                                        .xxh3 = ""},
                                       {}));
    pictures->conditioning.push_back(std::move(sent));
  }
  if (pictures->conditioning.empty()) return absl::InvalidArgumentError("a lease of no picture");
  return ReadyLease{
      .lease = std::move(lease), .head = std::nullopt, .pictures = std::move(pictures)};
}

// All pictures of a lease are one batch: on some devices a row's bits depend on the rows beside it.
PictureWork::Drawn PictureWork::DrawOne(const ReadyLease& ready, SamplerModel& model,
                                        const Watch& watch) const {
  OXBOW_ASSIGN_OR_RETURN(const model::VelocityModel* network,
                         model.ForPictures(ready.pictures->weights));
  std::vector<model::ImageRequest> requests;
  const v1::Lease::Pictures& wanted = ready.lease.pictures();
  for (int i = 0; i < wanted.pictures_size(); ++i) {
    OXBOW_ASSIGN_OR_RETURN(
        const model::Conditioning conditioning,
        ConditioningFrom(spec_, *ready.pictures->conditioning[static_cast<size_t>(i)]));
    requests.push_back({.conditioning = model::MovedTo(conditioning, spec_.device),
                        .key = {.run_seed = spec_.run_seed,
                                .group = wanted.pictures(i).noise_group(),
                                .sample = wanted.pictures(i).noise_sample()}});
  }
  const c10::InferenceMode no_gradients;
  return model::SampleFrames(*watch(*network), model.decoder(), spec_.held_out, requests,
                             spec_.held_out_shape, static_cast<int64_t>(requests.size()));
}

void PictureWork::Draw(const std::vector<ReadyLease>& leases, SamplerModel& model,
                       const Watch& watch, const TakeDrawn& take) const {
  for (const ReadyLease& ready : leases) {
    Drawn drawn;
    try {
      drawn = DrawOne(ready, model, watch);
    } catch (const std::exception& error) {
      drawn = model::DeviceErrorOf(error).value_or(
          absl::InternalError(absl::StrCat("torch: ", error.what())));
    }
    take(ready.lease, std::move(drawn));
  }
}

absl::StatusOr<bool> PictureWork::Deliver(const v1::Lease& lease, const Pictures& pictures,
                                          const std::function<bool(absl::Duration)>& pause) {
  absl::StatusOr<bool> taken;
  const auto once = [&] { return (taken = DeliverOnce(lease, pictures)).status(); };
  OXBOW_RETURN_IF_ERROR(rpc::RetryUntilAnswered({}, once, pause));
  return taken;
}

absl::StatusOr<bool> PictureWork::DeliverOnce(const v1::Lease& lease, const Pictures& pictures) {
  const auto context = rpc::ContextWithDeadline(kSendAtMost);
  rpc::SilenceGuard::Watched watched(guard_, *context, spec_.rpc_timeout);
  const auto stream = coordinator_.Deliver(context.get());
  v1::DeliverRequest request;
  request.set_epoch(spec_.epoch.value);
  request.set_worker_id(worker_id_);
  request.set_lease_id(lease.lease_id());
  bool open = true;
  for (size_t i = 0; open && i < pictures.size(); ++i) {
    for (v1::PicturePiece& piece : rpc::InPieces(lease.pictures().evaluation(),
                                                 lease.pictures().first_place() + i, pictures[i])) {
      *request.mutable_piece() = std::move(piece);
      if (!(open = stream->Write(request))) break;
      watched.SignOfLife();
    }
  }
  stream->WritesDone();
  v1::DeliverResponse response;
  const bool answered = stream->Read(&response);
  const absl::Status status = watched.Ended(stream->Finish());
  if (answered) return response.taken();
  if (!status.ok()) return status;
  return absl::UnavailableError("the learner closed the stream without an answer");
}

}  // namespace oxbow::rollout
