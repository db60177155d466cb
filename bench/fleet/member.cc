// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "bench/fleet/learner_ranks.h"
#include "bench/fleet/made_up_group.h"
#include "bench/fleet/own_account.h"
#include "core/parallel/share.h"
#include "rpc/server.h"
#include "services/learner/coordinator/experience_sink_service.h"
#include "services/learner/ranks/rank_stream.h"

namespace oxbow::bench {
namespace {

// Takes this rank's share of a step and looks at every byte of it.
absl::Status TakeShare(const Load& load, const v1::StepManifest& manifest,
                       learner::HeldGroups& held) {
  const auto count = static_cast<size_t>(manifest.groups_size());
  const parallel::Share share = parallel::ShareOf(count, load.rank, load.ranks);
  for (size_t i = share.begin; i < share.end; ++i) {
    const v1::Group& named = manifest.groups(static_cast<int>(i)).group();
    const auto received = held.Take(LeaseId(named.lease_id()));
    if (!received.ok()) return received.status();
    if (received->group.group_id() != manifest.step() * load.groups + i) {
      return absl::DataLossError(absl::StrCat("place ", i, " has another group"));
    }
    const absl::Status content = CheckContent(load, received->group);
    if (!content.ok()) return content;
  }
  held.Forget(LearnerStep(manifest.step() + 1));
  return absl::OkStatus();
}

}  // namespace

int RunMember(const Load& load) {
  prometheus::Registry registry;
  learner::LearnerMetrics metrics(registry);
  const OwnAccount account;
  ByteBudget budget(SinkBytes(load));
  std::unique_ptr<learner::RankStream> stream;
  learner::HeldGroups held(
      RulesOf(load), [](const v1::Group&) { return learner::KeptLatents::kNone; },
      [&stream](const v1::Group& group) { return stream->Accept(group); });
  auto sink =
      std::make_unique<learner::ExperienceSinkService>(held, budget, RulesOf(load), metrics);
  auto server = rpc::Server::Start({}, {sink.get()});
  OXBOW_CHECK(server.ok()) << server.status();
  v1::RankReport::Hello place;
  place.set_sink_endpoint((*server)->endpoint());
  stream = std::make_unique<learner::RankStream>(
      learner::RankStream::Options{.leader = load.leader, .rank = load.rank, .place = place},
      Clock::Steady(), [](const absl::Status&) {});
  rpc::AnnounceReady("member", place.sink_endpoint(), "-");
  absl::Status status;
  while (true) {
    const auto command = stream->Next();
    if (!command.ok()) status = command.status();
    if (!command.ok() || command->has_stop()) break;
    if (command->has_step()) status = TakeShare(load, command->step(), held);
    if (!command->has_save()) continue;
    v1::RankReport::Saved word;
    word.set_committed_steps(command->save().committed_steps());
    word.set_file(absl::StrCat("rank-", load.rank));
    word.set_error(status.ok() ? "" : status.ToString());
    stream->Saved(word);
  }
  (*server)->Shutdown(absl::Milliseconds(300));
  server->reset();
  sink.reset();
  stream.reset();
  account.Print();
  if (!status.ok()) std::fprintf(stderr, "rank %d: %s\n", load.rank, status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace oxbow::bench
