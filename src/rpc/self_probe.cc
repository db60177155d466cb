// SPDX-License-Identifier: Apache-2.0
#include "rpc/self_probe.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <unistd.h>

#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "rpc/channel.h"
#include "rpc/health_service.h"
#include "rpc/tls.h"

namespace oxbow::rpc {

void EndDeafProcess(const std::string& line) {
  std::cerr << line << std::endl;
  ::_exit(kExitUnavailable);  // Destructors would wait for the server that does not work.
}

SelfProbe::SelfProbe(std::string endpoint, Options options, std::function<uint64_t()> refused)
    : endpoint_(std::move(endpoint)),
      options_(std::move(options)),
      refused_(std::move(refused)),
      thread_([this] { Loop(); }) {}

SelfProbe::~SelfProbe() {
  ended_.Notify();
  thread_.join();
}

void SelfProbe::Loop() {
  int failures = 0;
  while (!ended_.WaitForNotificationWithTimeout(options_.every)) {
    const uint64_t refused = refused_();
    if (Answers() || refused_() != refused) {
      failures = 0;
    } else if (++failures == options_.failures_max && !ended_.HasBeenNotified()) {
      options_.deaf(absl::StrCat("the own port ", endpoint_, " answered no new connection ",
                                 failures, " times in a row, within ",
                                 absl::FormatDuration(options_.timeout),
                                 " each: this process ends, so that it is started again"));
    }
  }
}

bool SelfProbe::Answers() const {
  grpc::ChannelArguments arguments;
  // Without this, channels to one endpoint share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto credentials = OwnCredentials(arguments);
  const auto channel = grpc::CreateCustomChannel(endpoint_, credentials, arguments);
  const grpc::Status status = CallBytes(channel, kHealthCheck, options_.timeout).status;
  return status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
}

}  // namespace oxbow::rpc
