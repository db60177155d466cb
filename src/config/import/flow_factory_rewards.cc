// SPDX-License-Identifier: Apache-2.0
// Flow-Factory's rewards as reward.terms, reward.observed and reward.scorers.
//
//   reward_model                    entry here
//   PickScore                       scorer pickscore
//   PickScore_Rank                  scorer pickscore_rank, which compares a group
//   CLIP                            scorer clipscore, variant flow_factory
//   OCR                             scorer ocr, variant flow_factory, engine ppocr
//   ...RemotePointwiseRewardModel   kind json
//   ...RemoteGroupwiseRewardModel   kind json, variant groupwise
//   vllm_evaluate                   kind vlm, variant yes_no
//   anything else                   none: a server elsewhere must have it
#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "config/import/translation.h"

namespace oxbow::config {
namespace {

constexpr double kTimeoutRoom = 10;  // Seconds of a call beyond those of a server elsewhere.
constexpr uint64_t kConcurrencyMax = 256;

// A text as YAML between quotation marks.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    absl::ascii_iscntrl(static_cast<unsigned char>(c))
        ? quoted += absl::StrFormat("\\x%02x", static_cast<unsigned char>(c))
        : quoted += c;
  }
  return quoted + "\"";
}

class RewardSections {
 public:
  explicit RewardSections(Translation& t) : t_(t) {}

  void All() {
    std::vector<std::string> terms;
    for (size_t i = 0; i < t_.settings().SizeOf("rewards"); ++i) {
      element_ = absl::StrCat("rewards[", i, "]");
      const ForeignSetting name = Name();
      if (!name.present) {
        t_.Refuse(name, "a reward needs a name or a reward_model");
        continue;
      }
      terms.push_back(absl::StrFormat("{name: %s, weight: %s}", Quoted(name.text()),
                                      t_.Get(element_ + ".weight").text()));
      Entry();
    }
    element_ = "rewards[0]";
    if (terms.empty()) return t_.Refuse(Name(), "there is no reward to train on");
    t_.Set("reward.terms", absl::StrCat("[", absl::StrJoin(terms, ", "), "]"), Name());
    std::vector<std::string> observed;
    for (size_t i = 0; i < t_.settings().SizeOf("eval_rewards"); ++i) {
      element_ = absl::StrCat("eval_rewards[", i, "]");
      const ForeignSetting name = Name();
      if (!name.present || names_.contains(name.text())) continue;
      observed.push_back(Quoted(name.text()));
      Entry();
    }
    Write("reward.observed", observed, "eval_rewards[0]");
    Write("reward.scorers", entries_, entries_of_);
    if (timeout_ + kTimeoutRoom > t_.config().reward().timeout_seconds()) {
      t_.Set("reward.timeout_seconds", timeout_ + kTimeoutRoom, timeout_of_);
    }
  }

 private:
  ForeignSetting Of(const std::string& key) const {
    return t_.Get(absl::StrCat(element_, ".", key));
  }

  // The name that Flow-Factory gives the reward, if it has one.
  ForeignSetting Name() const {
    const ForeignSetting name = Of("name");
    return name.present ? name : Of("reward_model");
  }

  void Write(const std::string& key, const std::vector<std::string>& list, const std::string& of) {
    element_ = of;
    if (!list.empty()) t_.Set(key, absl::StrCat("[", absl::StrJoin(list, ", "), "]"), Name());
  }

  // Adds the entry of the reward, or says that there is none.
  void Entry() {
    names_.insert(Name().text());
    const ForeignSetting model = Of("reward_model");
    const std::string kind = model.present ? absl::AsciiStrToLower(model.text()) : "";
    keys_ = {absl::StrCat("name: ", Quoted(Name().text()))};
    used_ = {"name", "reward_model", "weight"};
    if (kind == "pickscore" || kind == "pickscore_rank") {
      Clip(kind, "yuvalkirstain/PickScore_v1");
    } else if (kind == "clip") {
      Clip("clipscore", "openai/clip-vit-large-patch14");
      keys_.emplace_back("variant: flow_factory");
    } else if (kind == "ocr") {
      Ocr("PaddlePaddle/PP-OCRv5_server");
    } else if (absl::EndsWith(kind, ".remotepointwiserewardmodel")) {
      Remote("pointwise");
    } else if (absl::EndsWith(kind, ".remotegroupwiserewardmodel")) {
      Remote("groupwise");
    } else if (kind == "vllm_evaluate") {
      Judge();
    } else {
      t_.Differs(Name(),
                 "no reward of this build: a server at reward.endpoints must know it by this name "
                 "(Flow-Factory's own class is served by oxbow.reward in python/)");
      return Leftovers();
    }
    if (entries_.empty()) entries_of_ = element_;
    entries_.push_back(absl::StrCat("{", absl::StrJoin(keys_, ", "), "}"));
    Leftovers();
  }

  void Clip(const std::string& scorer, const std::string& directory) {
    const ForeignSetting device = Of("device"), dtype = Of("dtype");
    const std::string type = dtype.present ? absl::AsciiStrToLower(dtype.text()) : "bfloat16";
    const std::pair<const char*, const char*> types[] = {{"bf16", "bf16"}, {"bfloat16", "bf16"},
                                                         {"fp16", "f16"},  {"float16", "f16"},
                                                         {"fp32", "f32"},  {"float32", "f32"}};
    const auto ours = std::find_if(std::begin(types), std::end(types),
                                   [&](const auto& one) { return type == one.first; });
    if (ours == std::end(types)) return t_.Refuse(dtype, "expected float32, bfloat16 or float16");
    keys_.push_back("scorer: " + scorer);
    keys_.push_back("model: " + Quoted(directory));
    keys_.push_back("device: " + Quoted(device.present ? device.text() : "cuda"));
    keys_.push_back(absl::StrCat("dtype: ", ours->second));
    used_.insert({"device", "dtype"});
    t_.Differs(Of("reward_model"),
               absl::StrCat("the `model` of its entry, ", directory,
                            ", is a directory, or an id of the Hub that `oxbow fetch` gets"));
  }

  // Its networks compute in float32 there, whatever its dtype.
  void Ocr(const std::string& directory) {
    const ForeignSetting device = Of("device");
    keys_.insert(keys_.end(), {"scorer: ocr", "variant: flow_factory", "engine: ppocr",
                               "model: " + Quoted(directory),
                               "device: " + Quoted(device.present ? device.text() : "cuda")});
    used_.insert("device");
    t_.Differs(Of("reward_model"),
               absl::StrCat("the `model` of its entry, ", directory,
                            ", is a directory with the networks `det` and `rec` of PP-OCRv5 "
                            "(docs/rewards.md). Without `model` and `device`, `engine: tesseract` "
                            "reads: do not compare their curves"));
  }

  void Remote(const char* variant) {
    const ForeignSetting url = Of("server_url"), batch = Of("batch_size");
    if (!url.present) return t_.Refuse(url, "a remote reward needs its server_url");
    keys_.insert(keys_.end(),
                 {"kind: json", "url: " + Quoted(url.text()), absl::StrCat("variant: ", variant)});
    used_.insert({"server_url", "batch_size"});
    if (batch.present) keys_.push_back(absl::StrCat("batch_max: ", batch.text()));
    Timeout();
  }

  void Judge() {
    const ForeignSetting url = Of("api_base_url"), llm = Of("vlm_model"),
                         most = Of("max_concurrent");
    keys_.insert(keys_.end(),
                 {"kind: vlm", "variant: yes_no",
                  "url: " + Quoted(url.present ? url.text() : "http://localhost:8000/v1"),
                  "llm: " + Quoted(llm.present ? llm.text() : "Qwen3-VL")});
    used_.insert({"api_base_url", "vlm_model", "max_concurrent"});
    if (most.present) {
      keys_.push_back(absl::StrCat("concurrency: ", std::min(most.count(), kConcurrencyMax)));
    }
    Timeout();
    const ForeignSetting tokens = Of("top_logprobs"), cases = Of("canonicalize");
    if (tokens.present && tokens.count() != 20)
      t_.Refuse(tokens, "the 20 likeliest tokens are read");
    if (cases.present && cases.flag()) t_.Refuse(cases, "the tokens Yes and No alone are read");
    t_.Differs(
        Of("reward_model"),
        "the picture travels as PNG here and JPEG there, and an answer without Yes and No has "
        "no score instead of 0");
  }

  void Timeout() {
    const ForeignSetting timeout = Of("timeout");
    used_.insert("timeout");
    if (!timeout.present) return;
    keys_.push_back(absl::StrFormat("timeout_seconds: %g", timeout.number()));
    if (timeout.number() <= timeout_) return;
    timeout_ = timeout.number();
    timeout_of_ = timeout;
  }

  // Says what becomes of the keys that the entry did not take.
  void Leftovers() {
    for (const char* key :
         {"batch_size", "device", "dtype", "server_url", "timeout", "api_base_url", "vlm_model",
          "max_concurrent", "top_logprobs", "canonicalize"}) {
      const ForeignSetting s = Of(key);
      if (!s.present || used_.contains(key)) continue;
      t_.NotNeeded(s, "the reward server's own business");
    }
    ForeignSetting secret = Of("api_key");
    if (!secret.present) return;
    const bool none = secret.text() == "EMPTY";
    secret.items = {"(not repeated)"};
    none ? t_.NotNeeded(secret, "no key is sent")
         : t_.Differs(secret, "write the key into a file and name that in the entry's key_file");
  }

  Translation& t_;
  std::string element_;  // "rewards[1]", the reward that is translated.
  std::vector<std::string> keys_;
  std::set<std::string> used_, names_;
  std::vector<std::string> entries_;
  std::string entries_of_;
  double timeout_ = 0;
  ForeignSetting timeout_of_;
};

}  // namespace

void TranslateRewards(Translation& t) { RewardSections(t).All(); }

}  // namespace oxbow::config
