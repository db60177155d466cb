// `oxbow rollback RUN_DIR --to STEP`: returns a run that has ended to an earlier checkpoint.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace oxbow::cli {

void AddRollback(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
