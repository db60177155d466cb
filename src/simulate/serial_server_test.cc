// A single server against the closed form of M/D/1: with Poisson arrivals of rate r and service s,
// the mean wait is u s / (2 (1 - u)), u = r s (Pollaczek-Khinchine).
#include "simulate/serial_server.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"

namespace oxbow::simulate {
namespace {

double MeanWait(double load, uint64_t seed) {
  constexpr int kJobs = 400'000;
  constexpr double kService = 0.25;
  RandomStream random({.seed = seed});
  SerialServer server(1);
  double now = 0;
  double waited = 0;
  for (int i = 0; i < kJobs; ++i) {
    now += -std::log1p(-random.NextUniform()) * kService / load;
    waited += server.Serve(now, kService) - now - kService;
  }
  return waited / kJobs;
}

TEST(SerialServerTest, MeanWaitIsThatOfTheTheory) {
  for (const double load : {0.3, 0.6, 0.8}) {
    const double theory = load * 0.25 / (2 * (1 - load));
    EXPECT_NEAR(MeanWait(load, 7) / theory, 1, 0.03) << "load " << load << ", seed 7";
  }
}

TEST(SerialServerTest, EqualServersShareTheJobs) {
  SerialServer server(3);
  for (int i = 0; i < 7; ++i) {
    EXPECT_DOUBLE_EQ(server.Serve(10, 2), 10 + 2 * (i / 3 + 1)) << "job " << i;
  }
  EXPECT_DOUBLE_EQ(server.busy_s(), 14);
  EXPECT_DOUBLE_EQ(server.FreeAt(10), 14);
}

TEST(SerialServerTest, WithoutLimitNobodyWaits) {
  SerialServer server(0);
  for (int i = 0; i < 100; ++i) EXPECT_DOUBLE_EQ(server.Serve(1, 2), 3);
}

}  // namespace
}  // namespace oxbow::simulate
