// SPDX-License-Identifier: Apache-2.0
// This binary's tables, in place of the product's: a row each for the second architecture.
#include "core/model/architecture.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"
#include "tests/second_architecture/video_transformer.h"

namespace oxbow {

const std::vector<model::ArchitectureRow>& model::ArchitectureTable() {
  static const std::vector<model::ArchitectureRow> table = {
      {testing::kVideoClassName, [](const model::ArchitectureSource& source) {
         return testing::ReadVideoArchitecture(source.config_json);
       }}};
  return table;
}

const std::vector<io::Pipeline>& io::PipelineTable() {
  static const std::vector<io::Pipeline> table = {
      {.class_name = "TestVideoPipeline",
       .text_side = "characters",
       .components = {{"transformer", testing::kVideoClassName, "config.json",
                       "diffusion_pytorch_model", /*required=*/true},
                      {"scheduler", "FlowMatchEulerDiscreteScheduler", "scheduler_config.json", "",
                       /*required=*/true}}}};
  return table;
}

const std::vector<io::TextSide>& io::TextSideTable() {
  static const std::vector<io::TextSide> table = {{"characters", testing::OpenVideoTextSide,
                                                   testing::VideoPromptTokens,
                                                   /*token_counter=*/nullptr}};
  return table;
}

}  // namespace oxbow
