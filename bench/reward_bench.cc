// SPDX-License-Identifier: Apache-2.0
// Measures rewards: a model's own speed, and what the server costs around a scorer.
//
//   reward_bench model --entry '{name: pickscore, model: DIR}' [--entry ...] [--rounds 7]
//   reward_bench serve [--batch-max 0] [--batch-ms 0] [--waiting-mib 1024]
//   reward_bench call --server HOST:PORT [--callers 1] [--pictures 24] [--side 512] [--seconds 5]
//   [--rate 0]
//   reward_bench groups --server HOST:PORT [--groups 8] [--pictures 8] [--rounds 100] [--prompt
//   TEXT]
//
// `model` scores groups of pictures that no round has seen before, in this process. `serve` has one
// scorer, which says 0 of each picture and sleeps for --batch-ms over each batch; it ends when its
// input ends. `call` asks it, each caller for one group after the other; with --rate so many
// pictures a second are offered, whatever the answers. `groups` asks for the scores of groups of
// pictures of 8 x 20 as a worker does that has sampled them, on four threads. It says what a round
// takes, and this process's processor time. Each prints one line of JSON. bench/reward_bench.py
// runs all of it and the Python that it is compared with.
#include <prometheus/registry.h>
#include <sys/resource.h>
#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/philox.h"
#include "base/statistics.h"
#include "config/yaml_message.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "services/reward/reward_client.h"
#include "services/reward/reward_service.h"
#include "services/reward/scorer_table.h"

namespace oxbow::reward {
namespace {

struct Flags {
  std::vector<std::string> entries;
  int rounds = 7;
  uint32_t batch_max = 0;
  int batch_ms = 0;
  uint64_t waiting_mib = 1024;
  std::string server;
  int callers = 1;
  int pictures = 24;
  int side = 512;
  double seconds = 5;
  double rate = 0;
  int groups = 8;
  std::string prompt = "text 473";
};

// Smooth shapes and noise, another picture for each number.
Image8 Picture(int side, uint64_t number) {
  RandomStream random({.seed = number});
  const uint64_t slope = 1 + random.NextBelow(7), shift = random.NextBelow(256);
  Image8 image{side, side, 3, {}};
  image.pixels.reserve(static_cast<size_t>(side) * static_cast<size_t>(side) * 3);
  for (uint64_t i = 0; i < static_cast<uint64_t>(side) * static_cast<uint64_t>(side) * 3; ++i) {
    image.pixels.push_back(
        static_cast<uint8_t>(i / 3 * slope / static_cast<uint64_t>(side) + shift + i % 11));
  }
  return image;
}

std::vector<Image8> Pictures(int count, int side, uint64_t first) {
  std::vector<Image8> pictures;
  for (int i = 0; i < count; ++i) {
    pictures.push_back(Picture(side, first + static_cast<uint64_t>(i)));
  }
  return pictures;
}

int64_t PeakMib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

absl::StatusOr<std::unique_ptr<Scorer>> ScorerOf(const std::string& text) {
  v1::ScorerConfig entry;
  const config::YamlSource source{.name = "--entry"};
  const auto node = config::ParseYaml(text, source);
  if (!node.ok()) return node.status();
  const absl::Status merged = config::MergeYaml(*node, source, "", &entry, nullptr);
  if (!merged.ok()) return merged;
  return MakeScorer(entry);
}

absl::Status MeasureModel(const Flags& flags) {
  std::vector<std::unique_ptr<Scorer>> scorers;
  for (const std::string& entry : flags.entries) {
    auto scorer = ScorerOf(entry);
    if (!scorer.ok()) return scorer.status();
    scorers.push_back(*std::move(scorer));
  }
  nlohmann::json seconds = nlohmann::json::array();
  for (int round = 0; round <= flags.rounds; ++round) {  // The first one warms up.
    const std::vector<Image8> pictures =
        Pictures(flags.pictures, flags.side, static_cast<uint64_t>(round) * 1000);
    const std::string prompt = absl::StrCat("a photo of ", round, " red apples on a table");
    std::vector<Item> items;
    for (const Image8& picture : pictures) {
      items.push_back({.prompt = prompt, .frames = {&picture, 1}, .group = 1});
    }
    const absl::Time start = absl::Now();
    for (const auto& scorer : scorers) {
      for (const auto& score : scorer->ScoreBatch(items)) {
        if (!score.ok()) return score.status();
      }
    }
    if (round > 0) seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
  }
  std::cout << nlohmann::json{{"seconds", seconds}, {"peak_mib", PeakMib()}} << "\n";
  return absl::OkStatus();
}

class SleepingScorer final : public Scorer {
 public:
  SleepingScorer(uint32_t batch_max, int batch_ms)
      : facts_({.name = "free", .identity = "free/1", .batch_max = batch_max}),
        took_(absl::Milliseconds(batch_ms)) {}
  const RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return 1; }
  std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) override {
    if (took_ > absl::ZeroDuration()) absl::SleepFor(took_);
    ++batches;
    scored += items.size();
    return std::vector<absl::StatusOr<Score>>(items.size(), Score{});
  }

  std::atomic<uint64_t> batches = 0;
  std::atomic<uint64_t> scored = 0;

 private:
  const RewardFacts facts_;
  const absl::Duration took_;
};

absl::Status Serve(const Flags& flags) {
  auto owned = std::make_unique<SleepingScorer>(flags.batch_max, flags.batch_ms);
  SleepingScorer& scorer = *owned;
  std::vector<std::unique_ptr<Scorer>> scorers;
  scorers.push_back(std::move(owned));
  const ScorerPanel panel(std::move(scorers));
  prometheus::Registry registry;
  RewardMetrics metrics(registry, panel);
  RewardService::Options options;
  options.queue.bytes_max = flags.waiting_mib << 20;
  RewardService service(options, panel, metrics, Clock::Steady());
  const auto server = rpc::Server::Start({}, {&service});
  if (!server.ok()) return server.status();
  std::cout << (*server)->endpoint() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  const uint64_t batches = scorer.batches, scored = scorer.scored;
  std::cout << nlohmann::json{{"batches", batches},
                              {"scored", scored},
                              {"waited_bytes_peak", service.QueueOf(scorer).bytes_peak()},
                              {"peak_mib", PeakMib()}}
            << "\n";
  return absl::OkStatus();
}

// One caller at a fixed pace: what a group is answered with, without asking again.
void Offer(const Flags& flags, absl::Time end, std::atomic<uint64_t>& scored,
           std::atomic<uint64_t>& refused) {
  const auto stub = v1::Reward::NewStub(rpc::Connect(flags.server));
  v1::ScoreRequest request;
  for (const Image8& picture : Pictures(flags.pictures, flags.side, 1)) {
    v1::ScoreItem& item = *request.add_items();
    item.set_item(static_cast<uint64_t>(request.items_size()));
    item.mutable_image()->set_width(static_cast<uint32_t>(picture.width));
    item.mutable_image()->set_height(static_cast<uint32_t>(picture.height));
    item.mutable_image()->set_channels(3);
    item.mutable_image()->set_pixels({picture.pixels.begin(), picture.pixels.end()});
  }
  const absl::Duration pace = absl::Seconds(flags.callers * flags.pictures / flags.rate);
  for (absl::Time next = absl::Now(); next < end; next += pace) {
    absl::SleepFor(next - absl::Now());
    const auto context = rpc::ContextWithDeadline(absl::Seconds(60));
    const auto stream = stub->Score(context.get());
    stream->Write(request);
    stream->WritesDone();
    for (v1::ScoreResponse answer; stream->Read(&answer);) {
      const bool ok = answer.outcomes_size() == 1 && answer.outcomes(0).status_code() == 0;
      ++(ok ? scored : refused);
    }
    if (!stream->Finish().ok()) refused += static_cast<uint64_t>(flags.pictures);
  }
}

// One caller that asks for the next group when it has its scores.
void Ask(const Flags& flags, absl::Time end, std::atomic<uint64_t>& scored,
         std::atomic<uint64_t>& refused) {
  auto client = RewardClient::Create({.endpoints = {flags.server}});
  OXBOW_CHECK(client.ok()) << client.status();
  const std::vector<Image8> pictures = Pictures(flags.pictures, flags.side, 1);
  std::vector<Frames> media;
  for (const Image8& picture : pictures) media.emplace_back(&picture, 1);
  while (absl::Now() < end) {
    for (const auto& scores : (*client)->ScoreMedia("a prompt", "", media)) {
      ++(scores.ok() ? scored : refused);
    }
  }
}

absl::Status Call(const Flags& flags) {
  std::atomic<uint64_t> scored = 0, refused = 0;
  const absl::Time start = absl::Now(), end = start + absl::Seconds(flags.seconds);
  std::vector<std::jthread> callers;
  for (int i = 0; i < flags.callers; ++i) {
    callers.emplace_back([&] { (flags.rate > 0 ? Offer : Ask)(flags, end, scored, refused); });
  }
  callers.clear();  // Joins them.
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  std::cout << nlohmann::json{{"scored", scored.load()},
                              {"refused", refused.load()},
                              {"seconds", seconds},
                              {"pictures_per_s", static_cast<double>(scored) / seconds}}
            << "\n";
  return absl::OkStatus();
}

// The groups go by themselves, side by side.
uint64_t ScoreRound(const Flags& flags, RewardClient& client, const std::vector<Frames>& media) {
  std::atomic<int> next = 0;
  std::atomic<uint64_t> failed = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (next++ < flags.groups) {
        for (const auto& score : client.ScoreMedia(flags.prompt, "", media)) {
          if (!score.ok()) ++failed;
        }
      }
    });
  }
  threads.clear();  // Joins them.
  return failed;
}

absl::Status MeasureGroups(const Flags& flags) {
  const auto client = RewardClient::Create({.endpoints = {flags.server}});
  if (!client.ok()) return client.status();
  const std::vector<Image8> pictures(static_cast<size_t>(flags.pictures),
                                     Image8{20, 8, 1, std::vector<uint8_t>(160, 7)});
  std::vector<Frames> media;
  for (const Image8& picture : pictures) media.emplace_back(&picture, 1);
  std::vector<double> ms;
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  for (int round = 0; round < flags.rounds; ++round) {
    const absl::Time start = absl::Now();
    if (ScoreRound(flags, **client, media) > 0) return absl::InternalError("not all are scored");
    ms.push_back(absl::ToDoubleMilliseconds(absl::Now() - start));
    absl::SleepFor(absl::Milliseconds(20));  // As between steps.
  }
  getrusage(RUSAGE_SELF, &after);
  const auto cpu = [](const rusage& usage) {
    return absl::ToDoubleMilliseconds(absl::DurationFromTimeval(usage.ru_utime) +
                                      absl::DurationFromTimeval(usage.ru_stime));
  };
  std::cout << nlohmann::json{{"ms", Quantile(ms, 0.5)},
                              {"cpu_ms", (cpu(after) - cpu(before)) / flags.rounds}}
            << "\n";
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Measures rewards.");
  CLI::App* const model = app.add_subcommand("model");
  model->add_option("--entry", flags.entries)->required()->allow_extra_args(false);
  model->add_option("--rounds", flags.rounds);
  CLI::App* const serve = app.add_subcommand("serve");
  serve->add_option("--batch-max", flags.batch_max);
  serve->add_option("--batch-ms", flags.batch_ms);
  serve->add_option("--waiting-mib", flags.waiting_mib);
  CLI::App* const call = app.add_subcommand("call");
  call->add_option("--server", flags.server)->required();
  call->add_option("--callers", flags.callers);
  call->add_option("--seconds", flags.seconds);
  call->add_option("--rate", flags.rate, "pictures a second; 0: as fast as answers come");
  for (CLI::App* const command : {model, call}) {
    command->add_option("--pictures", flags.pictures);
    command->add_option("--side", flags.side);
  }
  CLI::App* const groups = app.add_subcommand("groups");
  groups->add_option("--server", flags.server)->required();
  groups->add_option("--groups", flags.groups);
  groups->add_option("--pictures", flags.pictures);
  groups->add_option("--rounds", flags.rounds);
  groups->add_option("--prompt", flags.prompt);
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = model->parsed()    ? MeasureModel(flags)
                              : serve->parsed()  ? Serve(flags)
                              : groups->parsed() ? MeasureGroups(flags)
                                                 : Call(flags);
  if (!status.ok()) std::cerr << status.message() << "\n";
  return ExitCodeOf(status);
}

}  // namespace
}  // namespace oxbow::reward

int main(int argc, char** argv) { return oxbow::reward::Main(argc, argv); }
