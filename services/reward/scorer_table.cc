#include "services/reward/scorer_table.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#ifdef OXBOW_HAS_MODEL_REWARDS
#include "rewards/model_rewards.h"
#endif
#include "rewards/jpeg_size.h"
#include "rewards/json_scorer.h"
#include "rewards/judge_scorer.h"
#include "rewards/ocr_scorer.h"
#include "rewards/picture_guards.h"
#include "tasks/compose_scorer.h"
#include "tasks/digits_ocr.h"
#include "tasks/plates_scorer.h"

namespace oxbow::reward {
namespace {

using Keys = std::vector<std::string>;

struct Row {
  std::string name;
  absl::StatusOr<std::unique_ptr<Scorer>> (*make)(const v1::ScorerConfig& config);
  Keys needs = {};  // Keys without which it cannot be made.
  Keys takes = {};  // Further keys.
  // What else is wrong with an entry, without loading anything. Null: nothing can be.
  absl::Status (*check)(const v1::ScorerConfig& config) = nullptr;
};

// A scorer without settings, which has the name of its row.
template <std::unique_ptr<Scorer> (*Make)()>
absl::StatusOr<std::unique_ptr<Scorer>> Plain(const v1::ScorerConfig& /*config*/) {
  return Make();
}

absl::StatusOr<std::unique_ptr<Scorer>> Ocr(const v1::ScorerConfig& config) {
  rewards::OcrSettings settings{.name = config.name(), .tesseract = {}};
  if (!config.variant().empty()) settings.variant = config.variant();
  return rewards::MakeOcr(settings);
}

absl::Status CheckOcr(const v1::ScorerConfig& config) {
  if (config.engine().empty() || config.engine() == "tesseract") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("reward ", config.name(), ": engine is tesseract, got ", config.engine()));
}

absl::StatusOr<std::unique_ptr<Scorer>> JpegSize(const v1::ScorerConfig& config) {
  absl::StatusOr<std::unique_ptr<Scorer>> made = rewards::MakeJpegSize(config.variant());
  if (!made.ok()) return Annotate(made.status(), "reward " + config.name());
  return made;
}

absl::Status CheckJpegSize(const v1::ScorerConfig& config) { return JpegSize(config).status(); }
absl::StatusOr<rewards::RemoteServer::Options> ServerOf(const v1::ScorerConfig& config) {
  rewards::RemoteServer::Options server{.url = config.url()};
  if (config.key_file().empty()) return server;
  OXBOW_ASSIGN_OR_RETURN(server.key, rewards::ReadKey(config.key_file()));
  return server;
}

constexpr uint32_t kConcurrencyMax = 256;
constexpr double kTimeoutMax = 3600;

// The numbers of an entry for a server of others.
absl::Status CheckRemote(const v1::ScorerConfig& config) {
  const bool in_range = config.timeout_seconds() >= 0 && config.timeout_seconds() <= kTimeoutMax;
  if (in_range && config.concurrency() <= kConcurrencyMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("reward ", config.name(), ": timeout_seconds is in 0..", kTimeoutMax,
                   " and concurrency in 0..", kConcurrencyMax, ", got ", config.timeout_seconds(),
                   " and ", config.concurrency()));
}

absl::StatusOr<std::unique_ptr<Scorer>> JsonServer(const v1::ScorerConfig& config) {
  rewards::JsonScorerSettings settings{.name = config.name(), .model = config.llm()};
  if (!config.variant().empty() && config.variant() != "pointwise" &&
      config.variant() != "groupwise") {
    return absl::InvalidArgumentError(absl::StrCat(
        "reward ", config.name(), ": variant is pointwise or groupwise, got ", config.variant()));
  }
  settings.groupwise = config.variant() == "groupwise";
  if (config.batch_max() > 0) settings.batch_max = config.batch_max();
  if (config.concurrency() > 0) settings.concurrency = static_cast<int>(config.concurrency());
  if (config.timeout_seconds() > 0) settings.time_max = absl::Seconds(config.timeout_seconds());
  OXBOW_ASSIGN_OR_RETURN(settings.server, ServerOf(config));
  auto scorer = rewards::MakeJsonScorer(std::move(settings));
  if (!scorer.ok()) return Annotate(scorer.status(), "reward " + config.name());
  return scorer;
}

absl::StatusOr<std::unique_ptr<Scorer>> Judge(const v1::ScorerConfig& config) {
  rewards::JudgeSettings settings{
      .name = config.name(),
      .preset = config.variant().empty() ? config.name() : config.variant(),
      .llm = config.llm(),
      .question = config.question()};
  if (config.concurrency() > 0) settings.concurrency = static_cast<int>(config.concurrency());
  if (config.timeout_seconds() > 0) settings.time_max = absl::Seconds(config.timeout_seconds());
  OXBOW_ASSIGN_OR_RETURN(settings.server, ServerOf(config));
  auto scorer = rewards::MakeJudge(std::move(settings));
  if (!scorer.ok()) return Annotate(scorer.status(), "reward " + config.name());
  return scorer;
}

// A scorer that is cheap to make is checked by being made.
template <absl::StatusOr<std::unique_ptr<Scorer>> (*Make)(const v1::ScorerConfig&)>
absl::Status CheckByMaking(const v1::ScorerConfig& config) {
  OXBOW_RETURN_IF_ERROR(CheckRemote(config));
  return Make(config).status();
}

#ifdef OXBOW_HAS_MODEL_REWARDS
rewards::ModelRewardSettings SettingsOf(const v1::ScorerConfig& config) {
  return {.model = config.model(),
          .head = config.head(),
          .device = config.device(),
          .dtype = config.dtype(),
          .variant = config.variant()};
}

absl::Status CheckModel(const v1::ScorerConfig& config) {
  return Annotate(rewards::CheckModelReward(SettingsOf(config)), "reward " + config.name());
}

// A reward that is a model. Its errors name the reward.
template <rewards::OpenedReward (*Open)(const rewards::ModelRewardSettings&)>
absl::StatusOr<std::unique_ptr<Scorer>> Model(const v1::ScorerConfig& config) {
  rewards::OpenedReward opened = Open(SettingsOf(config));
  if (!opened.ok()) return Annotate(opened.status(), "reward " + config.name());
  return opened;
}
#endif

// A scorer under the name of its entry.
class NamedScorer final : public Scorer {
 public:
  NamedScorer(const std::string& name, std::unique_ptr<Scorer> scorer)
      : scorer_(std::move(scorer)), facts_(scorer_->facts()) {
    facts_.name = name;
  }
  const RewardFacts& facts() const override { return facts_; }
  std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) override {
    return scorer_->ScoreBatch(items);
  }
  int concurrency_max() const override { return scorer_->concurrency_max(); }

 private:
  const std::unique_ptr<Scorer> scorer_;
  RewardFacts facts_;
};

const std::vector<Row>& Table() {
  static const std::vector<Row>& table = *new std::vector<Row>{
      {"digits_ocr", Plain<MakeDigitsOcr>},
      {"digits_strict", Plain<MakeDigitsStrict>},
      {"digits_row", Plain<MakeDigitsRow>},
      {"compose", Plain<MakeCompose>},
      {"compose_strict", Plain<MakeComposeStrict>},
      {"plates_reader", Plain<MakePlatesReader>},
      {"plates_strict", Plain<MakePlatesStrict>},
      {"ocr", Ocr, {}, {"engine", "variant"}, CheckOcr},
      {"jpeg_size", JpegSize, {}, {"variant"}, CheckJpegSize},
      {"brightness", Plain<rewards::MakeBrightness>},
      {"edge_density", Plain<rewards::MakeEdgeDensity>},
      {"colour_entropy", Plain<rewards::MakeColourEntropy>},
      {"json",
       JsonServer,
       {"kind", "url"},
       {"variant", "llm", "key_file", "batch_max", "timeout_seconds", "concurrency"},
       CheckByMaking<JsonServer>},
      {"vlm",
       Judge,
       {"kind", "url", "llm"},
       {"variant", "question", "key_file", "timeout_seconds", "concurrency"},
       CheckByMaking<Judge>},
#ifdef OXBOW_HAS_MODEL_REWARDS
      {"pickscore",
       Model<rewards::OpenPickScoreReward>,
       {"model"},
       {"device", "dtype"},
       CheckModel},
      {"pickscore_rank",
       Model<rewards::OpenPickScoreRankReward>,
       {"model"},
       {"device", "dtype"},
       CheckModel},
      {"hpsv2", Model<rewards::OpenHpsv2Reward>, {"model"}, {"device", "dtype"}, CheckModel},
      {"clipscore",
       Model<rewards::OpenClipScoreReward>,
       {"model"},
       {"device", "dtype", "variant"},
       CheckModel},
      {"aesthetic",
       Model<rewards::OpenAestheticReward>,
       {"model", "head"},
       {"device", "dtype"},
       CheckModel},
#endif
  };
  return table;
}

bool Contains(const Keys& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

absl::StatusOr<const Row*> RowOf(const v1::ScorerConfig& config) {
  const std::string& name = ScorerNameOf(config);
  for (const Row& row : Table()) {
    if (row.name == name) return &row;
  }
  const std::string nearest = NearestName(name, ScorerNames());
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown reward (", nearest.empty() ? "" : absl::StrCat("did you mean `", nearest, "`? "),
      "there are ", absl::StrJoin(ScorerNames(), ", "), "): ", name));
}

// The keys that the entry sets, besides its name, its scorer and what its server does for it.
Keys KeysOf(const v1::ScorerConfig& config) {
  std::vector<const google::protobuf::FieldDescriptor*> set;
  config.GetReflection()->ListFields(config, &set);
  Keys keys;
  for (const google::protobuf::FieldDescriptor* field : set) {
    if (field->name() == "cache_items") continue;
    if (field->name() != "name" && field->name() != "scorer") keys.emplace_back(field->name());
  }
  return keys;
}

absl::Status CheckKeys(const Row& row, const v1::ScorerConfig& config) {
  const Keys keys = KeysOf(config);
  for (const std::string& key : row.needs) {
    if (Contains(keys, key)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("reward ", config.name(), " needs the key `", key, "`"));
  }
  for (const std::string& key : keys) {
    if (Contains(row.needs, key) || Contains(row.takes, key)) continue;
    Keys known = row.needs;
    known.insert(known.end(), row.takes.begin(), row.takes.end());
    return absl::InvalidArgumentError(
        absl::StrCat("reward ", config.name(), " takes no key `", key, "`; it takes ",
                     known.empty() ? "none" : absl::StrJoin(known, ", ")));
  }
  if (row.needs.empty() && row.takes.empty() && config.name() != row.name) {
    return absl::InvalidArgumentError(
        absl::StrCat("reward ", row.name, " has no other name, got ", config.name()));
  }
  return absl::OkStatus();
}

absl::Status CheckPaths(const v1::ScorerConfig& config) {
  const std::pair<const char*, std::string> paths[] = {
      {"model", config.model()}, {"head", config.head()}, {"key_file", config.key_file()}};
  for (const auto& [key, path] : paths) {
    std::error_code ignored;
    if (path.empty() || std::filesystem::exists(path, ignored)) continue;
    return absl::NotFoundError(absl::StrCat("reward ", config.name(), ": ", key,
                                            ": there is nothing at ", path,
                                            " (paths are relative to the working directory)"));
  }
  return absl::OkStatus();
}

}  // namespace

const std::string& ScorerNameOf(const v1::ScorerConfig& config) {
  if (!config.kind().empty()) return config.kind();
  return config.scorer().empty() ? config.name() : config.scorer();
}

std::vector<std::string> ScorerNames() {
  std::vector<std::string> names;
  for (const Row& row : Table()) names.push_back(row.name);
  return names;
}

std::vector<std::string> PlainScorerNames() {
  std::vector<std::string> names;
  for (const Row& row : Table()) {
    if (row.needs.empty()) names.push_back(row.name);
  }
  return names;
}

std::vector<v1::ScorerConfig> EntriesNamed(const std::vector<std::string>& names) {
  std::vector<v1::ScorerConfig> entries;
  for (const std::string& name : names) entries.emplace_back().set_name(name);
  return entries;
}

absl::Status CheckScorer(const v1::ScorerConfig& config) {
  OXBOW_ASSIGN_OR_RETURN(const Row* row, RowOf(config));
  OXBOW_RETURN_IF_ERROR(CheckKeys(*row, config));
  OXBOW_RETURN_IF_ERROR(CheckPaths(config));
  return row->check == nullptr ? absl::OkStatus() : row->check(config);
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const v1::ScorerConfig& config) {
  OXBOW_RETURN_IF_ERROR(CheckScorer(config));
  OXBOW_ASSIGN_OR_RETURN(const Row* row, RowOf(config));
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<Scorer> scorer, row->make(config));
  if (scorer->facts().name == config.name()) return scorer;
  return std::make_unique<NamedScorer>(config.name(), std::move(scorer));
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const std::string& name) {
  return MakeScorer(EntriesNamed({name}).front());
}

}  // namespace oxbow::reward
