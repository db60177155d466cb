// SPDX-License-Identifier: Apache-2.0
// Against diffusers' encode_prompt on the tiny pipeline of tools/make_text_goldens.py, and the room
// on disk.
#include "io/prompts/encoded_prompts.h"

#include <ATen/ATen.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gtest/gtest.h"
#include "io/graph_files.h"
#include "io/network_graph.h"
#include "io/prompts/prompt_store.h"
#include "io/prompts/text_sides.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

fs::path Goldens() {
  const char* directory = std::getenv("OXBOW_TEXT_GOLDENS");
  return directory != nullptr ? directory : OXBOW_SOURCE_DIR "/tests/golden/text";
}

fs::path Fresh(const std::string& name) {
  const fs::path directory = fs::path(::testing::TempDir()) / name;
  fs::remove_all(directory);
  return directory;
}

DiffusersComponents Components(const fs::path& model = Goldens() / "pipeline") {
  auto components = OpenDiffusersDirectory(model);
  EXPECT_TRUE(components.ok()) << components.status();
  return components.ok() ? *components : DiffusersComponents();
}

std::unique_ptr<EncodedPrompts> Opened(const DiffusersComponents& components, int64_t t5_length,
                                       const fs::path& directory = {}) {
  auto prompts = EncodedPrompts::Open(
      components, {.directory = directory, .encoders = {.t5_length = t5_length}, .batch = 4});
  EXPECT_TRUE(prompts.ok()) << prompts.status();
  return prompts.ok() ? *std::move(prompts) : nullptr;
}

void ExpectClose(const std::string& what, const at::Tensor& ours, const at::Tensor& golden) {
  ASSERT_EQ(ours.sizes(), golden.sizes()) << what;
  const double difference = (ours - golden).abs().max().item<double>();
  std::cout << what << ": max difference " << difference << "\n";
  EXPECT_LE(difference, 1e-5) << what;
}

void ExpectSame(const model::Conditioning& a, const model::Conditioning& b) {
  EXPECT_TRUE(at::equal(a.at(model::kPromptTokens), b.at(model::kPromptTokens)));
  EXPECT_TRUE(at::equal(a.at(model::kPooledPrompt), b.at(model::kPooledPrompt)));
}

// Float32 encoders: the golden side ran in float32, and stored weights are exact in float16.
void InFloat32(const fs::path& weights) {
  Safetensors file = *ReadSafetensors(weights);
  for (auto& [name, bytes] : file.tensors) bytes = FromTorch(ToTorch(bytes)->to(at::kFloat));
  EXPECT_TRUE(WriteSafetensors(weights, file).ok());
}

fs::path FloatPipeline() {
  const fs::path model = Fresh("float_pipeline");
  fs::copy(Goldens() / "pipeline", model, fs::copy_options::recursive);
  InFloat32(model / "text_encoder_3/model.safetensors");
  return model;
}

TEST(EncodedPromptsTest, TheTinyPipelineEncodesAsDiffusersDoes) {
  const fs::path model = FloatPipeline();
  int files = 0;
  for (const auto& entry : fs::directory_iterator(Goldens())) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("prompts_")) continue;
    ++files;
    Safetensors golden = *ReadSafetensors(entry.path());
    const auto out = *AllToTorch(golden.tensors);
    DiffusersComponents components = Components(model);
    if (golden.metadata["t5"] == "no") components.erase("text_encoder_3");
    const auto prompts = Opened(components, std::stoll(golden.metadata["t5_length"]));
    ASSERT_NE(prompts, nullptr);
    const auto texts = nlohmann::json::parse(golden.metadata["prompts"]).get<Texts>();
    const auto conditioning = prompts->Get(texts);
    ASSERT_TRUE(conditioning.ok()) << conditioning.status();
    ExpectClose(name + " tokens", conditioning->at(model::kPromptTokens), out.at("out.tokens"));
    ExpectClose(name + " pooled", conditioning->at(model::kPooledPrompt), out.at("out.pooled"));
    const auto negative = prompts->Get({""});
    ASSERT_TRUE(negative.ok()) << negative.status();
    ExpectClose(name + " negative", negative->at(model::kPromptTokens),
                out.at("out.negative_tokens"));
    ExpectClose(name + " negative", negative->at(model::kPooledPrompt),
                out.at("out.negative_pooled"));
  }
  EXPECT_GE(files, 3);
}

// As today's diffusers saves it: tokenizer.json alone, a CLIP without projection or prefix.
// Promise: Prompts become the tokens of transformers.
TEST(EncodedPromptsTest, TheTinyFluxEncodesAsDiffusersDoes) {
  const fs::path model = Fresh("float_flux");
  fs::copy(Goldens() / "pipeline_flux", model, fs::copy_options::recursive);
  fs::copy(Goldens() / "tokenizer_json/tokenizer", model / "tokenizer");
  fs::copy(Goldens() / "tokenizer_json/tokenizer_3", model / "tokenizer_2");
  InFloat32(model / "text_encoder_2/model.safetensors");
  Safetensors golden = *ReadSafetensors(Goldens() / "flux_prompts.safetensors");
  const auto out = *AllToTorch(golden.tensors);
  const auto prompts = Opened(Components(model), std::stoll(golden.metadata["t5_length"]));
  ASSERT_NE(prompts, nullptr);
  const auto texts = nlohmann::json::parse(golden.metadata["prompts"]).get<Texts>();
  const auto conditioning = prompts->Get(texts);
  ASSERT_TRUE(conditioning.ok()) << conditioning.status();
  ExpectClose("FLUX tokens", conditioning->at(model::kPromptTokens), out.at("out.tokens"));
  ExpectClose("FLUX pooled", conditioning->at(model::kPooledPrompt), out.at("out.pooled"));
}

fs::path WanPipeline() {
  const fs::path model = Fresh("float_wan");
  fs::copy(Goldens() / "pipeline_wan", model, fs::copy_options::recursive);
  InFloat32(model / "text_encoder/model.safetensors");
  return model;
}

// UMT5 with its own vocabulary; prompts are cleaned, padding is neither seen nor passed on.
// Promise: Prompts become the tokens of transformers.
TEST(EncodedPromptsTest, TheTinyWanEncodesAsDiffusersDoes) {
  Safetensors golden = *ReadSafetensors(Goldens() / "wan_prompts.safetensors");
  const auto out = *AllToTorch(golden.tensors);
  const auto prompts =
      Opened(Components(WanPipeline()), std::stoll(golden.metadata["t5_length"]), Fresh("wan"));
  ASSERT_NE(prompts, nullptr);
  const auto texts = nlohmann::json::parse(golden.metadata["prompts"]).get<Texts>();
  for (const char* way : {"encoded", "stored"}) {
    const auto conditioning = prompts->Get(texts);
    ASSERT_TRUE(conditioning.ok()) << conditioning.status();
    EXPECT_EQ(conditioning->size(), 1u);
    ExpectClose(absl::StrCat("Wan ", way), conditioning->at(model::kPromptTokens),
                out.at("out.tokens"));
    prompts->Release();
  }
  EXPECT_FALSE(prompts->encoders().loaded());
  ExpectClose("Wan negative", prompts->Get({""})->at(model::kPromptTokens),
              out.at("out.negative_tokens"));
}

// Promise: Prompts become the tokens of transformers.
TEST(EncodedPromptsTest, PromptsAreCleanedAsWanPipelineDoes) {
  const auto golden = nlohmann::json::parse(*ReadFile(Goldens() / "clean_prompts.json"));
  EXPECT_GE(golden.size(), 300u);
  int different = 0;
  for (const auto& item : golden) {
    const auto text = item[0].get<std::string>(), clean = item[1].get<std::string>();
    if (CleanedPrompt(text) == clean || ++different > 10) continue;
    ADD_FAILURE() << item.dump(-1, ' ', /*ensure_ascii=*/true) << " ours "
                  << nlohmann::json(CleanedPrompt(text)).dump(-1, ' ', true);
  }
  EXPECT_EQ(different, 0) << "of " << golden.size() << " prompts";
  EXPECT_EQ(CleanedPrompt("a \xff b"), "a \xef\xbf\xbd b");
}

fs::path LtxPipeline() {
  const fs::path model = Fresh("float_ltx");
  fs::copy(Goldens() / "pipeline_ltx", model, fs::copy_options::recursive);
  fs::copy(Goldens() / "tokenizer_json/tokenizer_3", model / "tokenizer");
  InFloat32(model / "text_encoder/model.safetensors");
  return model;
}

// T5 attends to the padding; the transformer is told where the text ends.
// Promise: Prompts become the tokens of transformers.
TEST(EncodedPromptsTest, TheTinyLtxEncodesAsDiffusersDoes) {
  Safetensors golden = *ReadSafetensors(Goldens() / "ltx_prompts.safetensors");
  const auto out = *AllToTorch(golden.tensors);
  const auto prompts =
      Opened(Components(LtxPipeline()), std::stoll(golden.metadata["t5_length"]), Fresh("ltx"));
  ASSERT_NE(prompts, nullptr);
  const auto texts = nlohmann::json::parse(golden.metadata["prompts"]).get<Texts>();
  for (const char* way : {"encoded", "stored"}) {
    const auto conditioning = prompts->Get(texts);
    ASSERT_TRUE(conditioning.ok()) << conditioning.status();
    EXPECT_EQ(conditioning->size(), 2u);
    ExpectClose(absl::StrCat("LTX ", way), conditioning->at(model::kPromptTokens),
                out.at("out.tokens"));
    EXPECT_TRUE(at::equal(conditioning->at(model::kPromptMask), out.at("out.mask"))) << way;
    prompts->Release();
  }
  EXPECT_FALSE(prompts->encoders().loaded());
  const auto negative = *prompts->Get({""});
  ExpectClose("LTX negative", negative.at(model::kPromptTokens), out.at("out.negative_tokens"));
  EXPECT_TRUE(at::equal(negative.at(model::kPromptMask), out.at("out.negative_mask")));
}

TEST(EncodedPromptsTest, AnLtxTakesAT5OfTheWidthOfItsCaptions) {
  const fs::path model = LtxPipeline();
  std::string config = *ReadFile(model / "transformer/config.json");
  const std::string width = "\"caption_channels\": 16";
  ASSERT_NE(config.find(width), std::string::npos);
  config.replace(config.find(width), width.size(), "\"caption_channels\": 20");
  ASSERT_TRUE(WriteFileAtomically(model / "transformer/config.json", config).ok());
  const absl::Status status = EncodedPrompts::Open(Components(model), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("caption_channels: 16 != 20"), std::string::npos) << status;
}

// In one line, with the file and its key.
TEST(EncodedPromptsTest, OtherKindsOfWanAreRefused) {
  const auto refused = [](const std::string& file, const std::string& from, const std::string& to,
                          const std::string& hint) {
    const fs::path model = WanPipeline();
    std::string content = *ReadFile(model / file);
    ASSERT_NE(content.find(from), std::string::npos) << from;
    content.replace(content.find(from), from.size(), to);
    ASSERT_TRUE(WriteFileAtomically(model / file, content).ok());
    const auto components = OpenDiffusersDirectory(model);
    const absl::Status status =
        components.ok() ? EncodedPrompts::Open(*components, {}).status() : components.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << file;
    EXPECT_NE(status.message().find(hint), std::string::npos) << status;
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
  };
  refused("model_index.json", "\"transformer_2\": [\n  null,\n  null",
          "\"transformer_2\": [\"diffusers\", \"WanTransformer3DModel\"",
          "model_index.json: 'transformer_2' is WanTransformer3DModel");
  refused("model_index.json", "WanPipeline", "WanVACEPipeline", "model_index.json: '_class_name'");
  refused("transformer/config.json", "\"image_dim\": null", "\"image_dim\": 1280",
          "transformer/config.json: 'image_dim' is 1280");
  refused("text_encoder/config.json", "\"model_type\": \"umt5\"", "\"model_type\": \"t5\"",
          R"(model_type is "t5", and the graph is for "umt5")");
  refused("transformer/config.json", "\"text_dim\": 20", "\"text_dim\": 16", "20 != 16");
  const fs::path model = WanPipeline();
  std::string index = *ReadFile(model / "model_index.json");
  index.replace(index.find("UniPCMultistepScheduler"), 23, "FlowMatchEulerDiscreteScheduler");
  ASSERT_TRUE(WriteFileAtomically(model / "model_index.json", index).ok());
  const std::string euler = R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3})";
  ASSERT_TRUE(WriteFileAtomically(model / "scheduler/scheduler_config.json", euler).ok());
  EXPECT_TRUE(OpenDiffusersDirectory(model).ok());
}

// In 16 bits, whatever the weights are stored in; float32 stays the numbers it was.
TEST(EncodedPromptsTest, EncodersRunInShortProducts) {
  for (const fs::path& model : {Goldens() / "pipeline", FloatPipeline(), WanPipeline()}) {
    const DiffusersComponents components = Components(model);
    TextEncoders::Options options{.t5_length = 9};
    auto whole = *TextEncoders::Open(components, options);
    options.dtype = at::kBFloat16;
    auto brief = *TextEncoders::Open(components, options);
    EXPECT_NE(*whole->Identity(), *brief->Identity()) << "each has a directory of its own";
    const Texts texts = {"a red cat", "text 473"};
    const model::EncodedText exact = *whole->Encode(texts), rounded = *brief->Encode(texts);
    for (const auto& [name, tensor] : rounded) {
      EXPECT_EQ(tensor.scalar_type(), at::kFloat) << name;
      EXPECT_TRUE(at::equal(tensor.to(at::kBFloat16).to(at::kFloat), tensor)) << name;
      const at::Tensor& golden = exact.at(name);
      const double error = ((tensor - golden).norm() / golden.norm()).item<double>();
      std::cout << name << " in bf16: relative error " << error << "\n";
      EXPECT_LT(error, 0.05) << name;
      EXPECT_GT(error, 1e-4) << name;
    }
  }
}

// Published runs of Wan have 512.
TEST(EncodedPromptsTest, WhereARunDoesNotSayTheModelHasItsNumberOfTokens) {
  const DiffusersComponents wan = Components(WanPipeline()), sd3 = Components();
  EXPECT_EQ(*PromptTokens(wan, 0), 512);
  EXPECT_EQ(*PromptTokens(wan, 20), 20);
  EXPECT_EQ(*PromptTokens(sd3, 0), 24 + 128);
  EXPECT_EQ(*PromptTokens(Components(LtxPipeline()), 0), 128);
  const auto encoders = *TextEncoders::Open(wan, {});
  EXPECT_EQ(encoders->row_shapes().at(model::kT5Tokens), (std::vector<int64_t>{1, 512, 20}));
  EXPECT_EQ(*encoders->Identity(), *(*TextEncoders::Open(wan, {.t5_length = 512}))->Identity());
}

// A cache that tools/encode_prompts wrote, for a pipeline whose encoders are not here.
// Promise: Prompts may be encoded elsewhere. The output of `tools/encode_prompts` is found by its
// identity, which both sides compute alike. A missing prompt is refused with the whole command that
// encodes it. The stored parts are those of the pipeline for each prompt alone.
TEST(EncodedPromptsTest, PromptsThatWereEncodedElsewhereAreFound) {
  const fs::path room = Fresh("elsewhere");
  fs::copy(Goldens() / "encoded_hunyuan_video", room, fs::copy_options::recursive);
  const auto prompts = Opened(Components(Goldens() / "pipeline_hunyuan_video"), 128, room);
  ASSERT_NE(prompts, nullptr);
  const auto conditioning = prompts->Get({"a red cat", ""});
  ASSERT_TRUE(conditioning.ok()) << conditioning.status();
  EXPECT_EQ(conditioning->at(model::kPromptTokens).sizes(), (std::vector<int64_t>{2, 128, 16}));
  EXPECT_GT(conditioning->at("mask").sum(1).min().item<double>(), 0);
  const at::Tensor pooled = conditioning->at(model::kPooledPrompt);
  EXPECT_GT((pooled[0] - pooled[1]).abs().max().item<double>(), 0.01);
  const Texts lacking = {"it's new", "a red cat"};
  for (const auto& status :
       {prompts->Prepare(lacking, [](const auto&) {}).status(), prompts->Get(lacking).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    const std::string command = absl::StrCat(
        "1 prompts are not in prompts.cache, and this pipeline's text encoders run outside; encode "
        "them with: python3 tools/encode_prompts --model '",
        (Goldens() / "pipeline_hunyuan_video").string(), "' --cache '", room.string(),
        "' --tokens 128 --prompts '", (prompts->directory() / "missing.jsonl").string(), "'");
    EXPECT_EQ(status.message(), command);
  }
  EXPECT_EQ(*ReadFile(prompts->directory() / "missing.jsonl"), "{\"prompt\":\"it's new\"}\n");
  const auto nowhere = Opened(Components(Goldens() / "pipeline_hunyuan_video"), 128);
  EXPECT_NE(nowhere->Get({""}).status().message().find("prompts.cache"), std::string::npos);
}

TEST(EncodedPromptsTest, StoredPromptsAreTheSameBitForBitWithoutTheEncoders) {
  const fs::path directory = Fresh("store");
  const Texts texts = {"a", "b", "", "a", "text 473", "\xe4\xbd\xa0 \xff broken"};
  const auto first = Opened(Components(), 9, directory);
  const model::Conditioning fresh = *first->Get(texts);
  EXPECT_TRUE(first->encoders().loaded());
  first->Release();
  EXPECT_FALSE(first->encoders().loaded());
  ExpectSame(*first->Get(texts), fresh);
  EXPECT_FALSE(first->encoders().loaded());
  const auto second = Opened(Components(), 9, directory);
  ExpectSame(*second->Get({texts[4], texts[0]}), model::SelectRows(fresh, at::tensor({4, 0})));
  EXPECT_FALSE(second->encoders().loaded());
}

TEST(EncodedPromptsTest, PrepareEncodesWhatIsMissingOnce) {
  const fs::path directory = Fresh("prepare");
  const auto prompts = Opened(Components(), 9, directory);
  ASSERT_TRUE(prompts->Get({"c"}).ok());
  std::vector<size_t> done;
  const auto count = prompts->Prepare({"a", "b", "c", "a", "d", "e", "f", "g"},
                                      [&](const EncodedPrompts::Progress& progress) {
                                        EXPECT_EQ(progress.total, 6u);
                                        done.push_back(progress.done);
                                      });
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, 6u);
  EXPECT_EQ(done, (std::vector<size_t>{0, 4, 6}));
  prompts->Release();
  EXPECT_EQ(*prompts->Prepare({"a", "g"}, [](const EncodedPrompts::Progress&) {}), 0u);
  EXPECT_FALSE(prompts->encoders().loaded());
}

TEST(EncodedPromptsTest, ProcessesThatStartTogetherShareTheWork) {
  const fs::path directory = Fresh("shared");
  const auto first = Opened(Components(), 9, directory),
             second = Opened(Components(), 9, directory);
  Texts texts;
  for (int i = 0; i < 16; ++i) texts.push_back(absl::StrCat("text ", i));
  // The second encodes its half while the first is at its first batch, which is told of it.
  bool started = false;
  size_t shown = 0;
  const auto count = first->Prepare(texts, [&](const EncodedPrompts::Progress& progress) {
    ++shown;
    if (progress.done == 0 || std::exchange(started, true)) return;
    size_t done = 0;
    const Texts half(texts.begin() + 8, texts.end());
    EXPECT_TRUE(second->Prepare(half, [&](const auto& now) { done = now.done; }).ok());
    EXPECT_EQ(done, 8u);
  });
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(*count, 16u);
  EXPECT_EQ(shown, 4u);  // Before, two batches, and a look over what the other did.
  std::string order;
  ASSERT_TRUE(Opened(Components(), 9, Fresh("rotated"))
                  ->Prepare(
                      texts, [&](const auto& now) { absl::StrAppend(&order, now.done, " "); }, 0.6)
                  .ok());
  EXPECT_EQ(order, "0 4 8 12 16 ");
}

// The identity must change with everything that changes what encoders say, and with nothing else.
// Promise: Encoded prompts are of their encoders.
TEST(EncodedPromptsTest, OtherModelsAndLengthsAreOtherRooms) {
  const fs::path model = Fresh("other_model");
  fs::copy(Goldens() / "pipeline", model, fs::copy_options::recursive);
  const auto identity = [&](int64_t t5_length) {
    return *Opened(Components(model), t5_length)->encoders().Identity();
  };
  const std::string original = *Opened(Components(), 9)->encoders().Identity();
  EXPECT_EQ(identity(9), original);  // Where it lies plays no part.
  std::set<std::string> seen = {original};
  EXPECT_TRUE(seen.insert(identity(10)).second) << "T5's length";
  const auto change = [&](const std::string& file, const std::function<void(std::string&)>& edit) {
    std::string content = *ReadFile(model / file);
    const std::string before = content;
    edit(content);
    EXPECT_TRUE(WriteFileAtomically(model / file, content).ok());
    EXPECT_TRUE(seen.insert(identity(9)).second) << file;
    EXPECT_TRUE(WriteFileAtomically(model / file, before).ok());
  };
  for (const char* encoder : {"text_encoder", "text_encoder_2", "text_encoder_3"}) {
    change(absl::StrCat(encoder, "/model.safetensors"),
           [](std::string& bytes) { bytes[bytes.size() - 3] ^= 1; });
  }
  change("tokenizer_2/tokenizer_config.json", [](std::string& text) { text += "\n"; });
  change("text_encoder/config.json", [](std::string& text) {
    text.replace(text.find("\"attention_dropout\": 0.0"), 24, "\"attention_dropout\": 0.1");
  });
  change("text_encoder_2/graph.json.gz", [&](std::string& bytes) {
    bytes = *ReadGraphFile(model / "text_encoder_2/graph.json.gz") + "\n";
  });
  EXPECT_EQ(identity(9), original);
  ASSERT_TRUE(WriteFileAtomically(model / "tokenizer_3/tokenizer.json", "{}").ok());
  EXPECT_NE(*IdentityOfTextEncoders(Components(model), ""),
            *IdentityOfTextEncoders(Components(), ""))
      << "tokenizer.json counts before the files of older versions";
  const std::string with_json = *IdentityOfTextEncoders(Components(model), "");
  ASSERT_TRUE(WriteFileAtomically(model / "tokenizer_3/chat_template.jinja", "{{ a }}").ok());
  EXPECT_NE(*IdentityOfTextEncoders(Components(model), ""), with_json) << "what a prompt is put in";
}

// Two texts that differ behind the limit alone are one prompt to the model, so a person is told.
TEST(EncodedPromptsTest, PromptsThatAreCutAreCounted) {
  const auto cut = [](int64_t t5_length, const Texts& texts) {
    const auto found = CountCut(Components(), t5_length, texts);
    EXPECT_TRUE(found.ok() && found->has_value()) << found.status();
    return **found;
  };
  const Texts texts = {"a", "a a a a a a a a a a a a", "a a a a a a a a a a a a a a a a"};
  const CutPrompts none = cut(100, texts);
  EXPECT_EQ(CutText(none), "");
  EXPECT_GT(none.longest, 16) << "a token for each word, and the last";
  const CutPrompts some = cut(none.longest - 1, texts);
  EXPECT_EQ(CutText(some), absl::StrCat("1 of 3 prompts is longer than ", none.longest - 1,
                                        " tokens and is cut (longest ", none.longest,
                                        "): raise prompts.t5_length to ", none.longest));
  CutPrompts most = some;
  most.tokens_max = kT5LengthMax;
  EXPECT_NE(CutText(most).find(": no setting reads more, shorten them"), std::string::npos);
  EXPECT_EQ(cut(1, texts).cut, 3u);
}

// `validate` opens encoders, and reads no weights.
TEST(EncodedPromptsTest, AMissingTensorIsFoundBeforeAnythingIsEncoded) {
  for (const char* encoder : {"text_encoder", "text_encoder_2", "text_encoder_3"}) {
    const fs::path model = Fresh(absl::StrCat("without_a_tensor_", encoder));
    fs::copy(Goldens() / "pipeline", model, fs::copy_options::recursive);
    const fs::path file = model / encoder / "model.safetensors";
    Safetensors content = *ReadSafetensors(file);
    const std::string lost = content.tensors.rbegin()->first;
    content.tensors.erase(lost);
    ASSERT_TRUE(WriteSafetensors(file, content).ok());
    const absl::Status status = TextEncoders::Open(Components(model), {.t5_length = 9}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << encoder << status;
    EXPECT_NE(status.message().find(lost), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find(encoder), absl::string_view::npos) << status;
  }
}

TEST(EncodedPromptsTest, ATextEncoderWithTwoTablesOfTokensIsRefused) {
  const fs::path model = Fresh("two_tables");
  fs::copy(Goldens() / "pipeline", model, fs::copy_options::recursive);
  const fs::path file = model / "text_encoder_3/model.safetensors";
  Safetensors content = *ReadSafetensors(file);
  TensorBytes& other = content.tensors["encoder.embed_tokens.weight"];
  other = content.tensors.at("shared.weight");
  ASSERT_TRUE(WriteSafetensors(file, content).ok());
  EXPECT_TRUE(Opened(Components(model), 9)->Get({"a"}).ok()) << "one table under both names";
  other.data[0] ^= 1;
  ASSERT_TRUE(WriteSafetensors(file, content).ok());
  const absl::Status status = Opened(Components(model), 9)->Get({"a"}).status();
  EXPECT_NE(status.message().find("shared.weight and encoder.embed_tokens.weight differ"),
            absl::string_view::npos)
      << status;
}

// Other programs may read it: docs/formats/model_files.md.
TEST(EncodedPromptsTest, AnEntryLiesWhereTheFormatSays) {
  const fs::path directory = Fresh("layout");
  const auto prompts = Opened(Components(), 9, directory);
  ASSERT_TRUE(prompts->Get({"a"}).ok());
  const std::string text = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
  const std::string identity = *prompts->encoders().Identity();
  ASSERT_EQ(identity.size(), 64u);
  const auto entry =
      ReadSafetensors(directory / identity.substr(0, 16) / "ca" / (text + ".safetensors"));
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(entry->metadata.at("oxbow.text_encoders"), identity);
  EXPECT_EQ(entry->metadata.at("oxbow.text_sha256"), text);
  std::set<std::string> names;
  for (const auto& [name, tensor] : entry->tensors) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"clip.pooled", "clip.tokens", "clip_2.pooled",
                                          "clip_2.tokens", "t5.tokens"}));
  EXPECT_EQ(entry->tensors.at("t5.tokens").dtype, DType::kF16);  // As its weights.
  EXPECT_EQ(entry->tensors.at("t5.tokens").shape, (std::vector<int64_t>{1, 9, 36}));
}

TEST(EncodedPromptsTest, BrokenEntriesAreNamed) {
  const fs::path directory = Fresh("broken_entries");
  const auto prompts = Opened(Components(), 9, directory);
  ASSERT_TRUE(prompts->Get({"a", "b"}).ok());
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  ASSERT_EQ(files.size(), 2u);
  const std::string first = *ReadFile(files[0]), second = *ReadFile(files[1]);
  const auto expect_broken = [&](const std::string& why) {
    const auto status = prompts->Get({"a", "b"}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << why;
    EXPECT_NE(status.message().find("delete it: " + files[0].string()), std::string::npos)
        << status;
  };
  ASSERT_TRUE(WriteFileAtomically(files[0], first.substr(0, first.size() / 2)).ok());
  expect_broken("cut short");
  ASSERT_TRUE(WriteFileAtomically(files[0], second).ok());
  expect_broken("of another text");
  ASSERT_TRUE(WriteFileAtomically(files[0], first).ok());
  EXPECT_TRUE(prompts->Get({"a", "b"}).ok());
}

TEST(EncodedPromptsTest, PartsThatDoNotFitEachOtherAreRefused) {
  const fs::path model = Fresh("unfit");
  fs::copy(Goldens() / "pipeline", model, fs::copy_options::recursive);
  const auto refused = [&](const std::string& file, const std::string& from, const std::string& to,
                           const std::string& hint) {
    const std::string before = *ReadFile(model / file);
    std::string content = before;
    content.replace(content.find(from), from.size(), to);
    ASSERT_TRUE(WriteFileAtomically(model / file, content).ok());
    auto prompts = EncodedPrompts::Open(Components(model), {});
    const absl::Status status = prompts.ok() ? (*prompts)->Get({"a"}).status() : prompts.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << file;
    EXPECT_NE(status.message().find(hint), std::string::npos) << status;
    ASSERT_TRUE(WriteFileAtomically(model / file, before).ok());
  };
  refused("text_encoder_3/config.json", "\"vocab_size\": ", "\"vocab_size\": 20, \"was\": ",
          "text_encoder_3/graph.json.gz: vocab_size is 20, and the graph is for ");
  refused("text_encoder_3/config.json", "\"gated-gelu\"", "\"relu\"",
          R"(feed_forward_proj is "relu", and the graph is for "gated-gelu")");
  refused("text_encoder/config.json", "\"hidden_act\": \"quick_gelu\"", "\"hidden_act\": \"silu\"",
          "silu");
  refused("transformer/config.json", "\"joint_attention_dim\": 36", "\"joint_attention_dim\": 40",
          "joint_attention_dim is 40, and the graph is for 36");
  refused("transformer/config.json", "\"joint_attention_dim\": 36", "\"joint_attention_dim\": 20",
          "joint_attention_dim is 20, and the graph is for 36");
  refused("tokenizer/vocab.json", "{", R"({"a word of another": 9999, )", "embeds ");
}

TEST(EncodedPromptsTest, AnEncoderWithoutAGraphIsRefusedWithTheCommandThatMakesOne) {
  const fs::path model = Fresh("no_graph");
  fs::copy(Goldens() / "pipeline", model, fs::copy_options::recursive);
  fs::remove(model / "text_encoder_3/graph.json.gz");
  const absl::Status status = TextEncoders::Open(Components(model), {.t5_length = 9}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  for (const std::string& part :
       {std::string("no graph of this T5EncoderModel"), std::string("d_ff is 24"),
        absl::StrCat("export T5EncoderModel --config ", (model / "text_encoder_3").string())}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
  }
}

// The graphs that come with oxbow are found by the published configs alone.
TEST(EncodedPromptsTest, PublishedEncodersHaveTheirGraphs) {
  const auto found = [](const std::string& class_name, const std::string& config) {
    const auto network = FindNetworkGraph({.class_name = class_name,
                                           .directory = "none",
                                           .config_json = config,
                                           .weights_base = "model"});
    EXPECT_TRUE(network.ok()) << network.status();
    return network.ok() ? network->graph.parameters.size() : 0;
  };
  const std::string clip_l =
      R"({"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
          "projection_dim": 768, "eos_token_id": 2, "pad_token_id": 1, "dropout": 0.0})";
  EXPECT_EQ(found("CLIPTextModel", clip_l), 196u);
  EXPECT_EQ(found("CLIPTextModelWithProjection", clip_l), 197u);
  EXPECT_EQ(found("CLIPTextModelWithProjection",
                  R"({"hidden_size": 1280, "intermediate_size": 5120, "num_attention_heads": 20,
                      "num_hidden_layers": 32, "projection_dim": 1280, "eos_token_id": 2,
                      "hidden_act": "gelu"})"),
            517u);
  const std::string xxl =
      R"("d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64,
         "feed_forward_proj": "gated-gelu", "layer_norm_epsilon": 1e-06)";
  EXPECT_EQ(found("T5EncoderModel", absl::StrCat(R"({"vocab_size": 32128, )", xxl, "}")), 219u);
  EXPECT_EQ(found("UMT5EncoderModel", absl::StrCat(R"({"vocab_size": 256384, )", xxl, "}")), 242u);
  EXPECT_EQ(found("Mistral3ForConditionalGeneration",  // FLUX.2-dev takes 30 layers of its 40.
                  R"({"vocab_size": 131072, "hidden_size": 5120, "intermediate_size": 32768,
                      "num_hidden_layers": 40, "num_attention_heads": 32, "head_dim": 128,
                      "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "hidden_act": "silu",
                      "rope_theta": 1000000000.0, "rope_type": "default"})"),
            271u);
}

}  // namespace
}  // namespace oxbow::io
