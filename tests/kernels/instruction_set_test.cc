// The choice of the instruction set by its name.
#include "kernels/instruction_set.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/cpu/loops/loops.h"

namespace snug::kernels {
namespace {

// Every set that this machine has can be named; what runs then is it.
TEST(InstructionSetTest, IsUsedWhenNamed) {
  const Loops& best = BestLoops();
  int used = 0;
  for (InstructionSet isa : {InstructionSet::kBaseline, InstructionSet::kAvx2,
                             InstructionSet::kAvx512, InstructionSet::kAvx512Bf16}) {
    const Loops* loops = LoopsOf(isa);
    if (loops == nullptr) continue;
    EXPECT_TRUE(UseInstructionSet(loops->name).ok()) << loops->name;
    EXPECT_EQ(&BestLoops(), loops);
    EXPECT_STREQ(InstructionSetInUse(), loops->name);
    ++used;
  }
  EXPECT_GE(used, 1);
  UseLoops(best);
}

TEST(InstructionSetTest, ANameThatIsNoneChangesNothing) {
  const Loops& best = BestLoops();
  for (const char* name : {"", "avx", "AVX2", "avx512bf16 "}) {
    EXPECT_EQ(UseInstructionSet(name).code, ErrorCode::kBadValue) << name;
    EXPECT_EQ(&BestLoops(), &best);
  }
}

}  // namespace
}  // namespace snug::kernels
