// Which diffusers pipelines are supported, and what a directory of each may hold.
//
// A model whose transformer is an architecture of its own (core/model/architecture_table.cc) is a
// row here; one whose prompts are encoded in a way of its own also is a row of
// prompts/text_side_table.cc.
#pragma once

#include <string>
#include <vector>

namespace oxbow::io {

struct PipelineComponent {
  std::string name;     // Its folder, and its key in model_index.json.
  std::string library;  // "diffusers" or "transformers".
  std::string class_name;
  std::string config_file;   // Empty: the component reads its files itself.
  std::string weights_base;  // Empty: it has no weights.
  bool required = false;
};

struct Pipeline {
  std::string class_name;  // model_index.json's _class_name.
  std::string text_side;   // How prompts become conditioning: a name of text_encoders.h.
  std::vector<PipelineComponent> components;  // Transformer, text side and decoder among them.
  std::vector<std::string> absent;            // Components that are only ever declared as absent.
};

// One row per pipeline, the first for directories that do not say their pipeline.
// pipeline_table.cc defines nothing else, so that a binary which defines its own table takes that.
const std::vector<Pipeline>& PipelineTable();

}  // namespace oxbow::io
