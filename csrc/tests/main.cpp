#include "tests/check.hpp"

int main() {
  int num_failed = 0;
  for (const ralm::test::Case& test : ralm::test::cases()) {
    const int before = ralm::test::failures();
    test.body();
    const bool failed = ralm::test::failures() != before;
    num_failed += failed;
    std::printf("%s %s\n", failed ? "FAIL" : "ok  ", test.name.c_str());
  }
  const int num_passed = static_cast<int>(ralm::test::cases().size()) - num_failed;
  std::printf("%d passed, %d failed\n", num_passed, num_failed);
  return num_failed == 0 ? 0 : 1;
}
