/* The functions of torch that are interposed as plain jumps. Their signatures are not known here:
 * an exported name is `jmp *slot`, which leaves every argument register and the stack untouched. A
 * slot starts at a resolver, so a call is right even if no bridge was ever loaded. After the first
 * call the slot holds the real function; after an install, the bridge's. x86-64 only. */
#include "interpose/internal.h"

#ifndef __x86_64__
#error "libpleat.so is written for x86-64; CMake leaves it out elsewhere"
#endif

#define PLEAT_STRING_(x) #x
#define PLEAT_STRING(x) PLEAT_STRING_(x)

/* A naked function holds only assembly, which cannot name an enumerator. So the number of a slot is
 * the number of its row, counted while the list is expanded. `symbol` is the mangled name that a
 * caller asks for. */
#define PLEAT_JUMP(hook, symbol) PLEAT_NUMBERED_JUMP(hook, symbol, __COUNTER__)
#define PLEAT_OTHER_JUMP(hook, symbol) PLEAT_JUMP(OTHER_##hook, symbol)
#define PLEAT_NUMBERED_JUMP(hook, symbol, number)                                         \
  _Static_assert(number == PLEAT_SLOT_##hook, "a jump goes through the slot of its row"); \
  PLEAT_EXPORT __attribute__((naked)) void jump_##hook(void) __asm__(symbol);             \
  PLEAT_EXPORT __attribute__((naked)) void jump_##hook(void) {                            \
    __asm__("endbr64\n\tjmp *pleat_slots+8*" PLEAT_STRING(number) "(%rip)");              \
  }                                                                                       \
  static __attribute__((naked)) void resolve_##hook(void) {                               \
    __asm__("endbr64\n\tpushq $" PLEAT_STRING(number) "\n\tjmp pleat_resolve_and_jump");  \
  }

/* Saves all registers that may carry an argument (rdi rsi rdx rcx r8 r9 rax r10 xmm0-7), asks
 * pleat_resolve_slot for the target, restores, drops the slot number and jumps. */
__attribute__((naked, used)) void pleat_resolve_and_jump(void) {
  __asm__(
      ".cfi_adjust_cfa_offset 8\n\t" /* the slot number */
      "pushq %rbp\n\t"
      ".cfi_adjust_cfa_offset 8\n\t"
      ".cfi_rel_offset %rbp, 0\n\t"
      "movq %rsp, %rbp\n\t"
      ".cfi_def_cfa_register %rbp\n\t"
      "pushq %rdi\n\t"
      "pushq %rsi\n\t"
      "pushq %rdx\n\t"
      "pushq %rcx\n\t"
      "pushq %r8\n\t"
      "pushq %r9\n\t"
      "pushq %rax\n\t"
      "pushq %r10\n\t"
      "subq $136, %rsp\n\t" /* 8 vectors, and 8 bytes that align the stack for the call */
      "movaps %xmm0, (%rsp)\n\t"
      "movaps %xmm1, 16(%rsp)\n\t"
      "movaps %xmm2, 32(%rsp)\n\t"
      "movaps %xmm3, 48(%rsp)\n\t"
      "movaps %xmm4, 64(%rsp)\n\t"
      "movaps %xmm5, 80(%rsp)\n\t"
      "movaps %xmm6, 96(%rsp)\n\t"
      "movaps %xmm7, 112(%rsp)\n\t"
      "movl 8(%rbp), %edi\n\t"
      "call pleat_resolve_slot\n\t"
      "movq %rax, %r11\n\t"
      "movaps (%rsp), %xmm0\n\t"
      "movaps 16(%rsp), %xmm1\n\t"
      "movaps 32(%rsp), %xmm2\n\t"
      "movaps 48(%rsp), %xmm3\n\t"
      "movaps 64(%rsp), %xmm4\n\t"
      "movaps 80(%rsp), %xmm5\n\t"
      "movaps 96(%rsp), %xmm6\n\t"
      "movaps 112(%rsp), %xmm7\n\t"
      "addq $136, %rsp\n\t"
      "popq %r10\n\t"
      "popq %rax\n\t"
      "popq %r9\n\t"
      "popq %r8\n\t"
      "popq %rcx\n\t"
      "popq %rdx\n\t"
      "popq %rsi\n\t"
      "popq %rdi\n\t"
      "popq %rbp\n\t"
      ".cfi_def_cfa %rsp, 16\n\t"
      "addq $8, %rsp\n\t"
      ".cfi_adjust_cfa_offset -8\n\t"
      "jmp *%r11");
}

PLEAT_HOOKS(PLEAT_JUMP, PLEAT_OTHER_JUMP, PLEAT_JUMP)

#define PLEAT_SYMBOL(hook, symbol) symbol,
static const char* const slot_symbols[PLEAT_SLOTS] = {
    PLEAT_HOOKS(PLEAT_SYMBOL, PLEAT_SYMBOL, PLEAT_SYMBOL)};

#define PLEAT_RESOLVER(hook, symbol) (void*)resolve_##hook,
#define PLEAT_OTHER_RESOLVER(hook, symbol) (void*)resolve_OTHER_##hook,
#define PLEAT_RESOLVERS PLEAT_HOOKS(PLEAT_RESOLVER, PLEAT_OTHER_RESOLVER, PLEAT_RESOLVER)
static void* const slot_resolvers[PLEAT_SLOTS] = {PLEAT_RESOLVERS};
__attribute__((used)) void* pleat_slots[PLEAT_SLOTS] = {PLEAT_RESOLVERS};

void pleat_set_slot(enum pleat_slot slot, void* target) {
  if (target != NULL) __atomic_store_n(&pleat_slots[slot], target, __ATOMIC_RELEASE);
}

/* Called by pleat_resolve_and_jump, at most once per slot and thread. */
__attribute__((used)) void* pleat_resolve_slot(unsigned slot) {
  void* const target = pleat_find_function(slot_symbols[slot]);
  if (target == NULL) pleat_no_target(slot_symbols[slot]);
  /* If an install on another thread was quicker, the function it put in is the one to call. */
  void* expected = slot_resolvers[slot];
  if (__atomic_compare_exchange_n(&pleat_slots[slot], &expected, target, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE))
    return target;
  return expected;
}
