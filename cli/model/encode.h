// `oxbow encode`: runs a model's text encoders over prompts ahead of training, so that the learner
// never has them in memory.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace oxbow::cli {

void AddEncode(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
