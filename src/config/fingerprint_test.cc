// SPDX-License-Identifier: Apache-2.0
// A field changes the fingerprint unless its option says otherwise, and the fingerprints of shipped
// configs stay what they are, so that old checkpoints go on.
#include "config/fingerprint.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <sstream>

#include "base/check.h"
#include "config/run_config.h"

namespace oxbow::config {
namespace {

namespace pb = google::protobuf;

v1::RunConfig Resolved(const std::vector<std::string>& overrides) {
  const auto resolved = LoadRunConfig({}, overrides, {});
  OXBOW_CHECK(resolved.ok()) << resolved.status();
  return resolved->config;
}

// Gives a field that holds no section another value.
void Change(pb::Message& message, const pb::FieldDescriptor& field) {
  const pb::Reflection& r = *message.GetReflection();
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return r.SetBool(&message, &field, !r.GetBool(message, &field));
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return r.SetDouble(&message, &field, r.GetDouble(message, &field) + 1);
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return r.SetUInt64(&message, &field, r.GetUInt64(message, &field) + 1);
    case pb::FieldDescriptor::CPPTYPE_UINT32:
      if (field.is_repeated()) return r.AddUInt32(&message, &field, 9);
      return r.SetUInt32(&message, &field, r.GetUInt32(message, &field) + 1);
    case pb::FieldDescriptor::CPPTYPE_STRING:
      if (field.is_repeated()) return r.AddString(&message, &field, "more");
      return r.SetString(&message, &field, r.GetString(message, &field) + "more");
    case pb::FieldDescriptor::CPPTYPE_ENUM: {
      const int is = r.GetEnumValue(message, &field);
      return r.SetEnumValue(&message, &field, is == 1 ? 2 : 1);
    }
    case pb::FieldDescriptor::CPPTYPE_MESSAGE:
      r.AddMessage(&message, &field);
      return;
    default:
      OXBOW_CHECK(false) << field.full_name();
  }
}

using Visit = std::function<void(pb::Message&, const pb::FieldDescriptor&, bool left_out)>;

// Calls `visit` with each field that holds no section, and whether it or a section around it is
// left out.
void ForEachField(pb::Message& message, bool left_out, const Visit& visit) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const pb::FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const bool out = left_out || IsLeftOut(field);
    if (!field.is_repeated() && field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      ForEachField(*message.GetReflection()->MutableMessage(&message, &field), out, visit);
    } else {
      visit(message, field, out);
    }
  }
}

TEST(FingerprintTest, AFieldChangesItUnlessItsOptionLeavesItOut) {
  v1::RunConfig config = Resolved({"model.device=cpu"});
  const std::string before = FingerprintOf(config);
  int fields = 0;
  ForEachField(config, false,
               [&](pb::Message& section, const pb::FieldDescriptor& field, bool left_out) {
                 const std::unique_ptr<pb::Message> kept(section.New());
                 kept->CopyFrom(section);
                 Change(section, field);
                 EXPECT_EQ(FingerprintOf(config) == before, left_out) << field.full_name();
                 section.CopyFrom(*kept);
                 ++fields;
               });
  EXPECT_GT(fields, 150);
}

// A schema that got keys of every type, and a section, after the first checkpoints were made.
constexpr char kGrownSchema[] = R"(
  name: "grown.proto" package: "grown" syntax: "proto3" dependency: "oxbow/v1/config.proto"
  message_type {
    name: "Config"
    field { name: "old" number: 1 type: TYPE_UINT32 label: LABEL_OPTIONAL }
    field { name: "share" number: 2 type: TYPE_DOUBLE label: LABEL_OPTIONAL
            options { [oxbow.v1.fingerprint] { unset_as: "0.1" } } }
    field { name: "count" number: 3 type: TYPE_UINT64 label: LABEL_OPTIONAL
            options { [oxbow.v1.fingerprint] { unset_as: "25" } } }
    field { name: "on" number: 4 type: TYPE_BOOL label: LABEL_OPTIONAL
            options { [oxbow.v1.fingerprint] { unset_as: "true" } } }
    field { name: "word" number: 5 type: TYPE_STRING label: LABEL_OPTIONAL
            options { [oxbow.v1.fingerprint] { unset_as: "plain" } } }
    field { name: "section" number: 6 type: TYPE_MESSAGE type_name: ".grown.Section"
            label: LABEL_OPTIONAL options { [oxbow.v1.fingerprint] { unset_as: "{}" } } }
  }
  message_type {
    name: "Section"
    field { name: "rate" number: 1 type: TYPE_DOUBLE label: LABEL_OPTIONAL
            options { [oxbow.v1.fingerprint] { unset_as: "1e-05" } } }
    field { name: "free" number: 2 type: TYPE_BOOL label: LABEL_OPTIONAL }
  })";

// Promise: Resume continues from the checkpoint.
TEST(FingerprintTest, ANewKeyOfAnyTypeAtTheValueOlderConfigsMeantIsLikeNone) {
  pb::FileDescriptorProto file;
  ASSERT_TRUE(pb::TextFormat::ParseFromString(kGrownSchema, &file));
  pb::DescriptorPool pool(pb::DescriptorPool::generated_pool());
  const pb::FileDescriptor* built = pool.BuildFile(file);
  ASSERT_NE(built, nullptr);
  pb::DynamicMessageFactory factory;
  const auto text = [&](const std::string& values) {
    const std::unique_ptr<pb::Message> config(
        factory.GetPrototype(built->FindMessageTypeByName("Config"))->New());
    EXPECT_TRUE(pb::TextFormat::ParseFromString(values, config.get())) << values;
    return FingerprintText(*config);
  };
  EXPECT_EQ(text("old: 7 share: 0.1 count: 25 on: true word: 'plain' section { rate: 1e-5 }"),
            "old: 7\n");
  EXPECT_EQ(text("old: 7 share: 0.3 count: 0 on: false word: '' section { free: true }"),
            "old: 7\nshare: 0.3\ncount: 0\non: false\nword: \"\"\n"
            "section {\n  rate: 0\n  free: true\n}\n")
      << "a value that is set to 0, false or nothing is another one";
}

// As protobuf 3.21 wrote it when the first checkpoints were made.
TEST(FingerprintTest, ItsTextIsFixedByteForByte) {
  v1::RunConfig config;
  config.mutable_run()->set_name("a\n\"b\" \xc3\xa9 'c'");
  config.mutable_optimizer()->set_learning_rate(0.1 + 0.2);
  config.mutable_model()->mutable_lora()->add_targets("to_q");
  config.mutable_model()->mutable_lora()->add_targets("to_k");
  const std::string text = FingerprintText(config, FingerprintAge::kFormer);
  EXPECT_THAT(text, ::testing::StartsWith(
                        "run {\n  name: \"a\\n\\\"b\\\" \\303\\251 \\'c\\'\"\n}\n"
                        "model {\n  lora {\n    targets: \"to_q\"\n    targets: \"to_k\"\n  }\n"
                        "  device: \"cpu\"\n}\n"
                        "prompts {\n}\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("  learning_rate: 0.30000000000000004\n"));
}

// A run that was renamed or moved, with its model and prompts, is the same run.
// Promise: A run goes on wherever it lies.
TEST(FingerprintTest, WhereARunAndItsFilesLieIsLeftOutAndFormerCheckpointsKnewIt) {
  const v1::RunConfig here = Resolved({});
  const std::vector<std::string> elsewhere = {
      "run.name=b",           "run.directory=/other", "model.path=/models/b",
      "prompts.train=/t.txt", "prompts.eval=/e.txt",  "reward.observed=[brightness]"};
  for (const std::string& one : elsewhere) {
    const v1::RunConfig there = Resolved({one});
    EXPECT_EQ(FingerprintOf(there), FingerprintOf(here)) << one;
    EXPECT_NE(FingerprintOf(there, FingerprintAge::kFormer),
              FingerprintOf(here, FingerprintAge::kFormer))
        << one;
  }
  v1::RunConfig back = Resolved(elsewhere);
  CopyFormerFields(here, back);
  EXPECT_EQ(FingerprintOf(back, FingerprintAge::kFormer),
            FingerprintOf(here, FingerprintAge::kFormer));
}

TEST(FingerprintTest, AValueThatOlderConfigsMeantIsLikeNone) {
  v1::RunConfig config = Resolved({"model.compute_dtype=f32"});
  const std::string before = FingerprintOf(config);
  config.mutable_model()->clear_compute_dtype();
  EXPECT_EQ(FingerprintOf(config), before);
  config.mutable_model()->set_compute_dtype(v1::STORAGE_D_TYPE_BF16);
  EXPECT_NE(FingerprintOf(config), before);
}

// Promise: An adapter needs no list of layers.
TEST(FingerprintTest, NoTargetsOfAdaptersAreThoseThatWereTheDefault) {
  const std::string former =
      "model.lora.targets=[attn.add_q_proj, attn.add_k_proj, attn.add_v_proj, attn.to_add_out, "
      "attn.to_q, attn.to_k, attn.to_v, attn.to_out.0]";
  for (const char* trained : {"model.trained=lora", "model.trained=full"}) {
    const v1::RunConfig before = Resolved({"recipe=digits-flow-grpo", trained, former});
    const v1::RunConfig now = Resolved({"recipe=digits-flow-grpo", trained});
    EXPECT_EQ(now.model().lora().targets_size(), 0);
    EXPECT_EQ(FingerprintOf(before), FingerprintOf(now));
    EXPECT_NE(FingerprintOf(
                  Resolved({"recipe=digits-flow-grpo", trained, "model.lora.targets=[attn.to_q]"})),
              FingerprintOf(now));
  }
}

// Each line: the fingerprints that checkpoints of this config have, former and present, a recipe,
// overrides. A recipe whose settings change on purpose gets a new line; for any other reason no
// line may change.
// Promise: Resume continues from the checkpoint.
TEST(FingerprintTest, CheckpointsOfShippedRecipesStillFit) {
  std::ifstream lines(OXBOW_SOURCE_DIR "/tests/golden/fingerprints.txt");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    std::istringstream words(line);
    std::string former, present, recipe;
    words >> former >> present >> recipe;
    std::vector<std::string> overrides = {"recipe=" + recipe};
    for (std::string word; words >> word;) overrides.push_back(word);
    EXPECT_EQ(FingerprintOf(Resolved(overrides), FingerprintAge::kFormer), former) << line;
    EXPECT_EQ(FingerprintOf(Resolved(overrides)), present) << line;
  }
  EXPECT_GT(count, 30);
}

}  // namespace
}  // namespace oxbow::config
