/* A program that confines itself (seccomp) in every way, with the preload library in it. Prints what it finds; the same must be
   printed with the library and without. Built and run by confined.py. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 8000, CALLS = 32 };
static unsigned char *memory;

static void rest(int ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&t, &t)) {
    }
}

/* Memory is had and given back, which a compiler may not leave out. */
static void allocate(size_t size) {
    static char *volatile bytes;
    bytes = malloc(size);
    memset(bytes, 1, size);
    free(bytes);
}

static int wait_for(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void write_all(void) {
    for (size_t page = 0; page < PAGES; page++) memory[page * PAGE]++;
}

static void fill(void) {
    memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t page = 0; page < PAGES; page++) memset(memory + page * PAGE, (int)(page & 255), PAGE);
    /* The allocator has a page at hand from here on, and standard output its buffer. */
    allocate(1000);
    allocate(200);
    printf("filled\n");
    fflush(stdout);
}

static pid_t child_for(int ms, int status) {
    pid_t pid = fork();
    if (pid == 0) {
        allocate(50);
        rest(ms);
        _exit(status);
    }
    return pid;
}

/* Calls that the library makes and this program does not. */
static const int OURS[] = {SYS_getpid, SYS_getppid, SYS_getrusage, SYS_gettid, SYS_waitid, SYS_pidfd_open, SYS_pidfd_getfd,
                           SYS_close_range, SYS_pread64, SYS_setrlimit, SYS_prlimit64, SYS_chdir, SYS_madvise, SYS_prctl,
                           SYS_ioctl, SYS_fstat};

struct filter {
    struct sock_filter code[2 * CALLS + 2];
    struct sock_fprog program;
};

static void forbid(struct filter *filter, const int *calls, size_t count, unsigned action) {
    size_t at = 0;
    filter->code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        filter->code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        filter->code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    }
    filter->code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter->program = (struct sock_fprog){(unsigned short)at, filter->code};
}

static void make_filter(struct filter *filter, unsigned action) {
    forbid(filter, OURS, action ? sizeof OURS / sizeof *OURS : 0, action);
}

/* The system call itself, past the C library. */
static long raw(long number, long first, long second, long third) {
#if defined __x86_64__
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third) : "rcx", "r11", "memory");
    return result;
#else
    return syscall(number, first, second, third);
#endif
}

static unsigned action_of(const char *name) {
    return !strcmp(name, "kill") ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM;
}

/* Puts the filter on as `how` says; 0 if it is on. */
static long confine(const char *how, struct filter *filter) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
    if (!strcmp(how, "prctl")) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter->program, 0, 0);
    if (!strcmp(how, "raw")) return raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&filter->program);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter->program);
}

/* What goes on in a program that has confined itself: children, memory, its end. */
static void goes_on(void) {
    for (int turn = 0; turn < 4; turn++) {
        allocate(300);
        pid_t pid = child_for(20, turn + 3);
        write_all();
        printf("child: %d\n", wait_for(pid));
    }
    pid_t pid = vfork();
    if (pid == 0) _exit(9);
    printf("vfork: %d\n", wait_for(pid));
    unsigned sum = 0;
    for (size_t at = 0; at < PAGES * PAGE; at += 64) sum = sum * 31 + memory[at];
    printf("sum: %u\n", sum);
}

/* While a child lives, and so a worker of the library. */
static void filters(const char *how, const char *what) {
    struct filter filter;
    make_filter(&filter, action_of(what));
    fill();
    pid_t pid = child_for(150, 2);
    rest(50);
    write_all();
    printf("filter: %ld\n", confine(how, &filter));
    for (int look = 0; look < 100; look++) allocate(100);
    printf("first: %d\n", wait_for(pid));
    /* The worker looks once a second. */
    if (!strcmp(how, "raw")) rest(3000);
    goes_on();
}

/* Before the first fork: what the library starts then has the filter from its beginning. */
static void filtered_first(void) {
    static const int workers[] = {SYS_pidfd_open, SYS_close_range, SYS_pread64};
    struct filter filter;
    forbid(&filter, workers, sizeof workers / sizeof *workers, SECCOMP_RET_KILL_PROCESS);
    fill();
    printf("filter: %ld\n", confine("raw", &filter));
    for (int turn = 0; turn < 10; turn++) {
        pid_t pid = child_for(60, turn);
        write_all();
        printf("child: %d\n", wait_for(pid));
    }
}

static void say_to(int file, const char *words) {
    if (write(file, words, strlen(words)) < 0) syscall(SYS_exit, 1);
}

static void say(const char *words) { say_to(1, words); }

static void work_strictly(void) {
    for (int turn = 0; turn < 1000; turn++) {
        allocate(200);
    }
    write_all();
    say("strict\n");
}

/* Only read, write and the end of the thread are allowed; the library's worker has ended a moment before. */
static void strict(void) {
    fill();
    pid_t pid = child_for(60, 0);
    write_all();
    wait_for(pid);
    rest(400);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0)) say("refused\n");
    work_strictly();
    syscall(SYS_exit, 0);
}

/* A child that the library's worker watches confines itself; its parent does not. */
static void strict_child(void) {
    fill();
    for (int turn = 0; turn < 4; turn++) {
        pid_t pid = fork();
        if (pid == 0) {
            rest(40);
            if (turn % 2 ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) : syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, 0))
                say("refused\n");
            work_strictly();
            syscall(SYS_exit, turn);
        }
        write_all();
        printf("strict child: %d\n", wait_for(pid));
    }
    goes_on();
}

static void *confine_thread(void *argument) {
    (void)argument;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0)) say("refused\n");
    for (int turn = 0; turn < 1000; turn++) memory[turn * PAGE + 8]++;
    syscall(SYS_exit, 0);
    return 0;
}

/* One thread confines itself, and the others go on. */
static void strict_thread(void) {
    fill();
    pid_t pid = child_for(100, 1);
    rest(30);
    pthread_t thread;
    pthread_create(&thread, 0, confine_thread, 0);
    pthread_join(thread, 0);
    printf("first: %d\n", wait_for(pid));
    goes_on();
}

/* Children by vfork confine themselves before they become other programs: memory is shared, confinement is not. */
static void vfork_confines(char *self) {
    struct filter harmless, severe;
    make_filter(&harmless, 0);
    make_filter(&severe, SECCOMP_RET_KILL_PROCESS);
    fill();
    pid_t pid = child_for(60, 1);
    write_all();
    wait_for(pid);
    for (int way = 0; way < 5; way++) {
        pid = child_for(60, 1);
        rest(20);
        pid_t child = vfork();
        if (child == 0) {
            if (way == 0) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            if (way == 1) confine("prctl", &harmless);
            if (way == 2) confine("syscall", &severe);
            if (way == 3) confine("prctl", &severe);
            if (way == 4) {
                confine("prctl", &harmless);
                execl(self, self, "status", "5", (char *)0);
            }
            _exit(5);
        }
        write_all();
        printf("vfork %d: %d\n", way, wait_for(child));
        wait_for(pid);
    }
    /* The parent is not confined, and the library goes on for it. */
    printf("mode: %d\n", prctl(PR_GET_SECCOMP, 0, 0, 0, 0));
    say_to(2, "the parent goes on\n");
    for (int turn = 0; turn < 8; turn++) {
        pid = child_for(250, turn);
        rest(100);
        write_all();
        printf("child: %d\n", wait_for(pid));
    }
}

/* The kernel refuses: nothing is confined, and the library goes on. */
static void refusals(void) {
    fill();
    printf("prctl: %d %d\n", prctl(PR_SET_SECCOMP, 99, 0, 0, 0), errno);
    printf("strict with flags: %ld %d\n", syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 7, 0), errno);
    printf("no filter: %ld %d\n", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0), errno);
    unsigned action = SECCOMP_RET_ALLOW;
    printf("asked: %ld\n", syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action));
    say_to(2, "the kernel has refused\n");
    printf("other calls: %d %ld\n", syscall(SYS_getppid) == getppid(), syscall(SYS_lseek, -1, 0L, 0L));
    for (int turn = 0; turn < 8; turn++) {
        pid_t pid = child_for(250, turn);
        rest(100);
        write_all();
        printf("child: %d\n", wait_for(pid));
    }
}

/* A program that is started under a filter. */
static void started(char *self, const char *what) {
    struct filter filter;
    /* The dynamic linker itself needs pread64. */
    static const int killed[] = {SYS_waitid, SYS_pidfd_open, SYS_pidfd_getfd, SYS_close_range, SYS_chdir, SYS_setrlimit};
    static const int refused[] = {SYS_waitid, SYS_pidfd_open, SYS_pidfd_getfd, SYS_close_range, SYS_chdir, SYS_setrlimit,
                                  SYS_getpid, SYS_getppid, SYS_getrusage, SYS_gettid, SYS_madvise, SYS_prctl, SYS_prlimit64};
    if (!strcmp(what, "kill")) forbid(&filter, killed, sizeof killed / sizeof *killed, action_of(what));
    else forbid(&filter, refused, sizeof refused / sizeof *refused, action_of(what));
    if (confine("raw", &filter)) printf("no filter\n");
    fflush(stdout);
    execl(self, self, "goes_on", (char *)0);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    setvbuf(stdout, 0, _IOLBF, 0);
    if (!strcmp(what, "filters")) filters(words[2], words[3]);
    if (!strcmp(what, "first")) filtered_first();
    if (!strcmp(what, "strict")) strict();
    if (!strcmp(what, "child")) strict_child();
    if (!strcmp(what, "thread")) strict_thread();
    if (!strcmp(what, "vfork")) vfork_confines(words[0]);
    if (!strcmp(what, "refusals")) refusals();
    if (!strcmp(what, "started")) started(words[0], words[2]);
    if (!strcmp(what, "goes_on")) {
        fill();
        goes_on();
    }
    if (!strcmp(what, "status")) return atoi(words[2]);
    return 0;
}
