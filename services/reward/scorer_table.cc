// SPDX-License-Identifier: Apache-2.0
#include "services/reward/scorer_table.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "config/file_paths.h"
#include "config/run_config.h"
#include "core/reward/synthetic_task.h"
#include "io/hub_id.h"
#include "rewards/json_scorer.h"
#include "rewards/judge_scorer.h"
#include "rewards/model_rewards.h"
#include "rewards/ocr_scorer.h"
#include "rewards/picture_guards.h"
#include "rewards/ppocr_reader.h"
#include "rewards/tesseract_reader.h"

namespace oxbow::reward {
namespace {

using Made = absl::StatusOr<std::unique_ptr<Scorer>>;

constexpr uint32_t kConcurrencyMax = 256;
constexpr double kTimeoutMax = 3600;

// Where and how a scorer asks, the same for all kinds.
template <typename Settings>
absl::Status SetServer(const v1::ScorerConfig& config, Settings& settings) {
  const double seconds = config.timeout_seconds();
  if (!(seconds >= 0 && seconds <= kTimeoutMax) || config.concurrency() > kConcurrencyMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout_seconds is in 0..", kTimeoutMax, " and concurrency in 0..",
                     kConcurrencyMax, ", got ", seconds, " and ", config.concurrency()));
  }
  if (config.concurrency() > 0) settings.concurrency = static_cast<int>(config.concurrency());
  if (seconds > 0) settings.time_max = absl::Seconds(seconds);
  settings.server.url = config.url();
  if (config.key_file().empty()) return absl::OkStatus();
  OXBOW_ASSIGN_OR_RETURN(settings.server.key, rewards::ReadKey(config.key_file()));
  return absl::OkStatus();
}

Made Json(const v1::ScorerConfig& config) {
  rewards::JsonScorerSettings settings{.name = config.name(), .model = config.llm()};
  const std::string& variant = config.variant();
  if (!variant.empty() && variant != "pointwise" && variant != "groupwise") {
    return absl::InvalidArgumentError(
        absl::StrCat("variant is pointwise or groupwise, got ", variant));
  }
  settings.groupwise = variant == "groupwise";
  if (config.batch_max() > 0) settings.batch_max = config.batch_max();
  OXBOW_RETURN_IF_ERROR(SetServer(config, settings));
  return rewards::MakeJsonScorer(settings);
}

Made Vlm(const v1::ScorerConfig& config) {
  rewards::JudgeSettings settings{
      .name = config.name(),
      .preset = config.variant().empty() ? config.name() : config.variant(),
      .llm = config.llm(),
      .question = config.question()};
  OXBOW_RETURN_IF_ERROR(SetServer(config, settings));
  return rewards::MakeJudge(std::move(settings));
}

using Keys = std::vector<std::string>;

struct Row {
  std::string name;
  std::function<Made(const v1::ScorerConfig& config)> make;
  Keys needs = {};  // Keys without which it cannot be made.
  Keys takes = {};  // Further keys.
  // Further checks of an entry, without loading anything. Null: nothing else can be wrong.
  absl::Status (*check)(const v1::ScorerConfig& config) = nullptr;
  // The Hub's repository of the published tokenizer, where that of the weights has none.
  std::string tokenizer = {};
  // The published source for a key that names a directory or file, and how it becomes that.
  std::map<std::string, std::string> sources = {};
};

// A scorer without settings, which has the name of its row.
template <std::unique_ptr<Scorer> (*Make)()>
Made Plain(const v1::ScorerConfig& /*config*/) {
  return Make();
}

// Errors name the reward.
template <Made (*Make)(const v1::ScorerConfig&)>
Made Named(const v1::ScorerConfig& config) {
  Made made = Make(config);
  if (!made.ok()) return Annotate(made.status(), "reward " + config.name());
  return made;
}

// For a scorer that is cheap to make.
template <Made (*Make)(const v1::ScorerConfig&)>
absl::Status CheckMade(const v1::ScorerConfig& config) {
  return Named<Make>(config).status();
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

// The keys that an entry of `ocr` may set besides its engine and variant.
Keys KeysOfEngine(const std::string& engine) {
  if (engine == "ppocr") return {"model", "device", "dtype", "confidence_min"};
  return {"page_mode", "scale", "margin", "deadline_seconds"};
}

rewards::TesseractSettings TesseractOf(const v1::ScorerConfig& config) {
  const auto number = [](uint32_t value) {
    return static_cast<int>(std::min<uint32_t>(value, std::numeric_limits<int>::max()));
  };
  rewards::TesseractSettings settings{.page_mode = number(config.page_mode()),
                                      .scale = number(config.scale())};
  if (config.has_margin()) settings.margin = number(config.margin());
  if (config.deadline_seconds() != 0) settings.deadline = absl::Seconds(config.deadline_seconds());
  return settings;
}

#ifdef OXBOW_HAS_MODEL_REWARDS
bool IsPpocr(const v1::ScorerConfig& config) { return config.engine() == "ppocr"; }

rewards::PpocrSettings PpocrOf(const v1::ScorerConfig& config) {
  return {.directory = config.model(),
          .device = config.device(),
          .dtype = config.dtype(),
          .confidence_min = config.confidence_min()};
}
#endif

absl::StatusOr<std::unique_ptr<rewards::TextReader>> Reader(
    [[maybe_unused]] const v1::ScorerConfig& config) {
#ifdef OXBOW_HAS_MODEL_REWARDS
  if (IsPpocr(config)) return rewards::OpenPpocr(PpocrOf(config));
#endif
  return rewards::TesseractReader::Create(TesseractOf(config));
}

Made Ocr(const v1::ScorerConfig& config) {
  rewards::OcrSettings settings{.name = config.name()};
  if (!config.variant().empty()) settings.variant = config.variant();
  absl::StatusOr<std::unique_ptr<rewards::TextReader>> reader = Reader(config);
  if (!reader.ok()) return Annotate(reader.status(), "reward " + config.name());
  return rewards::MakeOcr(settings, *std::move(reader));
}

absl::Status CheckOcr(const v1::ScorerConfig& config) {
  const auto refused = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("reward ", config.name(), why));
  };
  const std::string engine = config.engine().empty() ? "tesseract" : config.engine();
#ifdef OXBOW_HAS_MODEL_REWARDS
  const std::string engines = "tesseract or ppocr";
  const bool known = engine == "tesseract" || engine == "ppocr";
#else
  const std::string engines = "tesseract in a build without LibTorch";
  const bool known = engine == "tesseract";
#endif
  if (!known) return refused(absl::StrCat(": engine is ", engines, ", got ", engine));
  for (const std::string& key : KeysOf(config)) {
    if (key == "engine" || key == "variant" || absl::c_linear_search(KeysOfEngine(engine), key))
      continue;
    return refused(absl::StrCat(": engine ", engine, " takes no key `", key, "`"));
  }
#ifdef OXBOW_HAS_MODEL_REWARDS
  if (IsPpocr(config)) {
    if (config.model().empty()) return refused(": engine ppocr needs the key `model`");
    return Annotate(rewards::CheckPpocr(PpocrOf(config)), "reward " + config.name());
  }
#endif
  return Annotate(rewards::CheckTesseract(TesseractOf(config)), "reward " + config.name());
}

Made JpegSize(const v1::ScorerConfig& config) { return rewards::MakeJpegSize(config.variant()); }

#ifdef OXBOW_HAS_MODEL_REWARDS
constexpr char kPickScore[] = "the id yuvalkirstain/PickScore_v1 is the published one";
constexpr char kClipL[] = "the id openai/clip-vit-large-patch14 is the published one";
constexpr char kVitHTokenizer[] = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K";

rewards::ModelRewardSettings SettingsOf(const v1::ScorerConfig& config) {
  return {.model = config.model(),
          .head = config.head(),
          .tokenizer = config.tokenizer(),
          .device = config.device(),
          .dtype = config.dtype(),
          .variant = config.variant()};
}

absl::Status CheckModel(const v1::ScorerConfig& config) {
  return Annotate(rewards::CheckModelReward(SettingsOf(config)), "reward " + config.name());
}

absl::Status CheckGeneval(const v1::ScorerConfig& config) {
  return Annotate(rewards::CheckGenevalReward(SettingsOf(config)), "reward " + config.name());
}

template <rewards::OpenedReward (*Open)(const rewards::ModelRewardSettings&)>
Made Opened(const v1::ScorerConfig& config) {
  return Open(SettingsOf(config));
}

template <rewards::OpenedReward (*Open)(const rewards::ModelRewardSettings&)>
Made Model(const v1::ScorerConfig& config) {
  return Named<Opened<Open>>(config);
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
  void Stop() override { scorer_->Stop(); }

 private:
  const std::unique_ptr<Scorer> scorer_;
  RewardFacts facts_;
};

std::vector<Row> RowsOfTasks() {
  std::vector<Row> rows;
  for (const SyntheticTask* const task : AllTasks()) {
    for (const TaskReward& one : task->rewards()) {
      rows.push_back({one.name, [make = one.make](const v1::ScorerConfig&) { return make(); }});
    }
  }
  return rows;
}

std::vector<Row> OwnRows() {
  return {
      {"ocr",
       Ocr,
       {},
       {"engine", "variant", "page_mode", "scale", "margin", "deadline_seconds", "model", "device",
        "dtype", "confidence_min"},
       CheckOcr,
       {},
       {{"model",
         "models/ppocr_v6_tiny comes with oxbow; or a directory of two, such as "
         "PaddlePaddle/PP-OCRv5_server_det_safetensors as det, .._rec_safetensors as rec"}}},
      {"jpeg_size", Named<JpegSize>, {}, {"variant"}, CheckMade<JpegSize>},
      {"brightness", Plain<rewards::MakeBrightness>},
      {"edge_density", Plain<rewards::MakeEdgeDensity>},
      {"colour_entropy", Plain<rewards::MakeColourEntropy>},
      {"json",
       Named<Json>,
       {"kind", "url"},
       {"variant", "llm", "key_file", "batch_max", "timeout_seconds", "concurrency"},
       CheckMade<Json>},
      {"vlm",
       Named<Vlm>,
       {"kind", "url", "llm"},
       {"variant", "question", "key_file", "timeout_seconds", "concurrency"},
       CheckMade<Vlm>},
#ifdef OXBOW_HAS_MODEL_REWARDS
      {"pickscore",
       Model<rewards::OpenPickScoreReward>,
       {"model"},
       {"device", "dtype", "tokenizer"},
       CheckModel,
       kVitHTokenizer,
       {{"model", kPickScore}}},
      {"pickscore_rank",
       Model<rewards::OpenPickScoreRankReward>,
       {"model"},
       {"device", "dtype", "tokenizer"},
       CheckModel,
       kVitHTokenizer,
       {{"model", kPickScore}}},
      {"hpsv2",
       Model<rewards::OpenHpsv2Reward>,
       {"model"},
       {"device", "dtype", "tokenizer"},
       CheckModel,
       kVitHTokenizer,
       {{"model",
         "a directory: model.safetensors is HPS_v2.1_compressed.pt of xswu/HPSv2 through `oxbow "
         "convert-weights`, beside config.json of laion/CLIP-ViT-H-14-laion2B-s32B-b79K"}}},
      {"clipscore",
       Model<rewards::OpenClipScoreReward>,
       {"model"},
       {"device", "dtype", "tokenizer", "variant"},
       CheckModel,
       {},
       {{"model", kClipL}}},
      {"geneval",
       Model<rewards::OpenGenevalReward>,
       {"model", "head"},
       {"device", "dtype", "tokenizer", "variant"},
       CheckGeneval,
       {},
       {{"model",
         "a directory: model.safetensors is mmdetection's mask2former_swin-s-p4-w7-224_lsj_8x2_50e_"
         "coco_20220504_001756-743b7d99.pth through `oxbow convert-weights`"},
        {"head", kClipL}}},
      {"imagereward",
       Model<rewards::OpenImageRewardReward>,
       {"model"},
       {"device", "dtype"},
       CheckModel,
       {},
       {{"model",
         "a directory: model.safetensors is ImageReward.pt through `oxbow convert-weights`, beside "
         "vocab.txt of bert-base-uncased"}}},
      {"aesthetic",
       Model<rewards::OpenAestheticReward>,
       {"model", "head"},
       {"device", "dtype", "tokenizer"},
       CheckModel,
       {},
       {{"model", kClipL},
        {"head", "sac+logos+ava1-l14-linearMSE.pth through `oxbow convert-weights`"}}},
#endif
  };
}

const std::vector<Row>& Table() {
  static const std::vector<Row>& table = *[] {
    auto* rows = new std::vector<Row>(RowsOfTasks());
    for (Row& row : OwnRows()) rows->push_back(std::move(row));
    return rows;
  }();
  return table;
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

// As SourceOf, behind what is missing.
std::string SourceHint(const v1::ScorerConfig& config, const std::string& key) {
  const std::string source = SourceOf(config, key);
  return source.empty() ? "" : absl::StrCat("; ", source, " (docs/rewards.md)");
}

absl::Status CheckKeys(const Row& row, const v1::ScorerConfig& config) {
  if (const std::string key = MissingKey(config); !key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("reward ", config.name(), " needs the key `",
                                                   key, "`", SourceHint(config, key)));
  }
  for (const std::string& key : KeysOf(config)) {
    if (absl::c_linear_search(row.needs, key) || absl::c_linear_search(row.takes, key)) continue;
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
  const std::pair<const char*, std::string> paths[] = {{"model", config.model()},
                                                       {"head", config.head()},
                                                       {"tokenizer", config.tokenizer()},
                                                       {"key_file", config.key_file()}};
  for (const auto& [key, path] : paths) {
    std::error_code ignored;
    if (path.empty() || std::filesystem::exists(path, ignored)) continue;
    return absl::NotFoundError(
        absl::StrCat("reward ", config.name(), ": ", key, ": there is nothing at ", path,
                     config::WhereLookedFor(path), io::HubHint(path), SourceHint(config, key)));
  }
  return absl::OkStatus();
}

// The entry with directories in place of the Hub's ids, and with the published tokenizer where it
// names none and its model comes without. kNotFound for a path that leads nowhere, and with the
// command that fetches the tokenizer, if the Hub's cache does not have it.
absl::StatusOr<v1::ScorerConfig> WithFiles(const Row& row, v1::ScorerConfig config) {
  const std::vector<std::string> environment = config::ProcessEnvironment();
  config::FindFetchedModels(environment, config);
  OXBOW_RETURN_IF_ERROR(CheckPaths(config));
  const std::string published = PublishedTokenizer(config);
  if (published.empty()) return config;
  config.set_tokenizer(config::FetchedModel(published, environment));
  if (config.tokenizer() != published) return config;
  return absl::NotFoundError(absl::StrCat(
      "reward ", config.name(), ": no tokenizer.json and no vocab.json in ", config.model(),
      "; the published tokenizer of ", row.name, " is that of ", published, ": `",
      io::DownloadCommand(*io::ParseHubId(published), TokenizerFiles()),
      "` puts it where it is found, or name another directory with the key `tokenizer`"));
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

std::string PublishedTokenizer(const v1::ScorerConfig& config) {
  const absl::StatusOr<const Row*> row = RowOf(config);
  if (!row.ok() || !config.tokenizer().empty()) return "";
  std::error_code ignored;
  for (const char* file : {"tokenizer.json", "vocab.json"}) {
    if (std::filesystem::exists(std::filesystem::path(config.model()) / file, ignored)) return "";
  }
  return (*row)->tokenizer;
}

std::string SourceOf(const v1::ScorerConfig& config, const std::string& key) {
  const absl::StatusOr<const Row*> row = RowOf(config);
  if (!row.ok()) return "";
  const auto source = (*row)->sources.find(key);
  return source == (*row)->sources.end() ? "" : source->second;
}

std::string MissingKey(const v1::ScorerConfig& config) {
  const absl::StatusOr<const Row*> row = RowOf(config);
  if (!row.ok()) return "";
  const Keys keys = KeysOf(config);
  const auto missing =
      std::find_if((*row)->needs.begin(), (*row)->needs.end(),
                   [&](const std::string& key) { return !absl::c_linear_search(keys, key); });
  return missing == (*row)->needs.end() ? "" : *missing;
}

const std::vector<std::string>& TokenizerFiles() {
  static const std::vector<std::string>& files =
      *new std::vector<std::string>{"tokenizer.json", "tokenizer_config.json", "vocab.json",
                                    "merges.txt", "special_tokens_map.json"};
  return files;
}

absl::Status CheckScorer(const v1::ScorerConfig& config) {
  OXBOW_ASSIGN_OR_RETURN(const Row* row, RowOf(config));
  OXBOW_RETURN_IF_ERROR(CheckKeys(*row, config));
  OXBOW_ASSIGN_OR_RETURN(const v1::ScorerConfig found, WithFiles(*row, config));
  return row->check == nullptr ? absl::OkStatus() : row->check(found);
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const v1::ScorerConfig& config) {
  OXBOW_RETURN_IF_ERROR(CheckScorer(config));
  OXBOW_ASSIGN_OR_RETURN(const Row* row, RowOf(config));
  OXBOW_ASSIGN_OR_RETURN(const v1::ScorerConfig found, WithFiles(*row, config));
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<Scorer> scorer, row->make(found));
  if (scorer->facts().name == config.name()) return scorer;
  return std::make_unique<NamedScorer>(config.name(), std::move(scorer));
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const std::string& name) {
  return MakeScorer(EntriesNamed({name}).front());
}

}  // namespace oxbow::reward
