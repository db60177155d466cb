// SPDX-License-Identifier: Apache-2.0
// oxbow_models: `oxbow` with LibTorch (cli/commands.h), which starts it.
#include <c10/util/Exception.h>
#include <sys/prctl.h>

#include <iostream>
#include <string>

#include "base/exit_code.h"
#include "base/memory_limits.h"
#include "cli/commands.h"
#include "core/model/device_memory.h"
#include "rpc/server.h"

int main(int argc, char** argv) {
  prctl(PR_SET_NAME, "oxbow");  // As ps and top show it.
  oxbow::KeepFreedMemory();
  // `train` and `resume` handle stop signals themselves; the other commands end by them as any
  // program does.
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "train" || word == "resume") oxbow::rpc::BlockStopSignals();
  }
  try {
    return oxbow::cli::RunCommand(argc, argv);
  } catch (const c10::OutOfMemoryError& error) {
    // Networks have tried single rows by then (core/model/velocity_model.h).
    std::cerr << "oxbow: out of memory: " << oxbow::model::MemoryText(error)
              << ": use a device with more memory, or bf16 products\n";
    return oxbow::kExitOutOfMemory;
  }
}
