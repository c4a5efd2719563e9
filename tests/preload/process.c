/* Programs around which the library's worker process must not be noticed. Prints what it finds; the same must be printed
   with the library and without. Built and run by process.py. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };
static unsigned char *memory;
static size_t pages = 20000;
static char *self_path;
static volatile sig_atomic_t signals;

static void rest(int ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&t, &t)) {
    }
}

static int wait_for(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void fill(void) {
    memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t page = 0; page < pages; page++) memset(memory + page * PAGE, (int)(page & 255), PAGE);
}

/* A child that lives until it is killed. */
static pid_t lasting(void) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) rest(1000);
    }
    return pid;
}

/* A child that ends by itself, so that its parent may be another user by then. */
static pid_t brief(void) {
    pid_t pid = fork();
    if (pid == 0) {
        rest(100);
        _exit(0);
    }
    return pid;
}

static void end(pid_t pid) {
    kill(pid, SIGKILL);
    wait_for(pid);
}

/* Writes to all pages, so that there is something to copy ahead next time. */
static void write_all(void) {
    for (size_t page = 0; page < pages; page++) memory[page * PAGE]++;
}

static int threads_now(void) {
    char text[1024];
    int file = open("/proc/self/stat", O_RDONLY);
    ssize_t count = read(file, text, sizeof text - 1);
    close(file);
    if (count <= 0) return -1;
    text[count] = 0;
    char *at = strrchr(text, ')') + 2;
    for (int word = 3; word < 20; word++) at = strchr(at, ' ') + 1;
    return atoi(at);
}

/* Children of this thread, as the kernel lists them, but for one. */
static int children_but(pid_t known) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)syscall(SYS_gettid));
    FILE *file = fopen(path, "r");
    int count = 0, pid;
    while (file && fscanf(file, "%d", &pid) == 1) count += pid != known;
    if (file) fclose(file);
    return count;
}

/* The process has one thread, as Python looks after a fork, and as long as the child lives. */
static void counts(void) {
    fill();
    int most = 0;
    for (int turn = 0; turn < 4; turn++) {
        pid_t pid = lasting();
        for (int look = 0; look < 40; look++) {
            int now = threads_now();
            most = now > most ? now : most;
            write_all();
            rest(2);
        }
        end(pid);
    }
    printf("threads at most: %d\n", most);
}

/* Namespaces may be left and entered while a child lives. */
static void namespaces(void) {
    fill();
    pid_t pid = lasting();
    rest(100);
    int mounts = open("/proc/self/ns/mnt", O_RDONLY);
    int entered = setns(mounts, CLONE_NEWNS);
    printf("setns: %d %d\n", entered, entered ? errno : 0);
    int left = unshare(CLONE_NEWUSER);
    printf("unshare: %d %d\n", left, left ? errno : 0);
    end(pid);
    /* Children of a process that has left its process namespace are in another one. */
    fflush(stdout);
    int other = unshare(CLONE_NEWPID);
    for (int turn = 0; turn < 3; turn++) {
        pid = fork();
        if (pid == 0) {
            rest(40);
            _exit(other ? 1 : getpid() == 1);
        }
        if (pid < 0) printf("fork: %d\n", errno);
        else printf("child in its own: %d\n", wait_for(pid));
    }
}

/* wait() finds the program's children and no others, and none is left as a zombie. */
static void waits(void) {
    fill();
    for (int turn = 0; turn < 3; turn++) {
        pid_t pid = fork();
        if (pid == 0) {
            rest(60);
            _exit(3);
        }
        write_all();
        int status = 0;
        pid_t got = wait(&status);
        printf("wait: %d %d\n", got == pid, WEXITSTATUS(status));
        got = wait(&status);
        printf("no more: %d %d\n", (int)got, errno == ECHILD);
    }
    int left = 0;
    for (int look = 0; look < 10000; look++) {
        free(malloc(100));
        left = children_but(0);
        if (!left) break;
        rest(2);
    }
    printf("left behind: %d\n", left);
}

/* A filter on all threads that ends the process for calls that this program does not make. */
static void filter(void) {
    static const int forbidden[] = {SYS_pidfd_open, SYS_close_range, SYS_pread64, SYS_setrlimit, SYS_prlimit64, SYS_chdir};
    struct sock_filter code[32];
    size_t at = 0;
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)forbidden[i], 0, 1);
        code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)at, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    printf("filter: %ld\n", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
}

static void filters(void) {
    fill();
    pid_t pid = lasting();
    rest(50);
    filter();
    write_all();
    /* Long enough for a worker to see that the program has confined itself. */
    rest(1500);
    end(pid);
    /* Whatever works for the next children has the filter from its beginning. */
    for (int turn = 0; turn < 6; turn++) {
        pid = lasting();
        write_all();
        rest(60);
        end(pid);
    }
    printf("still here\n");
}

/* A program that becomes another one keeps nothing of its memory. */
static void becomes(void) {
    fill();
    pid_t pid = lasting();
    rest(100);
    char number[16];
    snprintf(number, sizeof number, "%d", (int)pid);
    fflush(stdout);
    execl(self_path, self_path, "became", number, (char *)0);
}

static void count_signal(int signal) {
    (void)signal;
    signals++;
}

/* A program that becomes itself again gets no signal and no zombie for what it has been. */
static void again(int turn, pid_t known) {
    signal(SIGCHLD, count_signal);
    if (turn) {
        for (int look = 0; look < 20; look++) rest(10);
        printf("signals: %d, children: %d\n", signals, children_but(known));
    }
    if (turn == 3) {
        end(known);
        return;
    }
    if (known) end(known);
    fill();
    pid_t pid = lasting();
    rest(100);
    char number[16], next[16];
    snprintf(number, sizeof number, "%d", (int)pid);
    snprintf(next, sizeof next, "%d", turn + 1);
    fflush(stdout);
    execl(self_path, self_path, "again", next, number, (char *)0);
}

/* Whether a child but for one acts as another user than this process. */
static int is_another_user(pid_t known) {
    char path[64], text[2048];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)syscall(SYS_gettid));
    FILE *file = fopen(path, "r");
    int pid, found = 0;
    while (file && fscanf(file, "%d", &pid) == 1) {
        snprintf(path, sizeof path, "/proc/%d/status", pid);
        int status = pid == known ? -1 : open(path, O_RDONLY);
        ssize_t count = status < 0 ? 0 : read(status, text, sizeof text - 1);
        if (status >= 0) close(status);
        if (count <= 0) continue;
        text[count] = 0;
        char *user = strstr(text, "\nUid:\t"), *state = strstr(text, "\nState:\t");
        found += user && state && state[8] != 'Z' && atoi(user + 6) != (int)getuid();
    }
    if (file) fclose(file);
    return found;
}

/* A program that gives up its privileges right after a fork keeps nothing that has them. */
static void gives_up(void) {
    fill();
    pid_t pid = fork();
    if (pid == 0) {
        rest(4000);
        _exit(0);
    }
    int changed = setresuid(65534, 65534, 65534), left = 1;
    /* Other than the child, which was root when it was born. */
    for (int look = 0; look < 350 && left; look++) {
        left = is_another_user(pid);
        rest(10);
    }
    printf("changed: %d, others: %d\n", changed, left);
    wait_for(pid);
}

static int runs(pid_t pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int file = open(path, O_RDONLY);
    ssize_t count = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    if (count <= 0) return 0;
    text[count] = 0;
    return strrchr(text, ')')[2] != 'Z';
}

static void became(pid_t known) {
    char path[64];
    int running = 1;
    for (int look = 0; look < 5000 && running; look++) {
        running = 0;
        snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
        FILE *file = fopen(path, "r");
        int pid;
        while (file && fscanf(file, "%d", &pid) == 1) running += pid != known && runs(pid);
        if (file) fclose(file);
        rest(2);
    }
    printf("holds the old memory: %d\n", running);
    end(known);
}

/* Workers of a prefork server go on sharing what no process writes, whatever becomes of a later child. */
static size_t shared_pages(void) {
    size_t count = 0;
    static unsigned long words[20000];
    int file = open("/proc/self/pagemap", O_RDONLY);
    if (pread(file, words, pages * 8, (off_t)((size_t)memory / PAGE * 8)) == (ssize_t)(pages * 8))
        for (size_t page = 0; page < pages; page++) count += (words[page] >> 63 & 1) && !(words[page] >> 56 & 1);
    close(file);
    return count;
}

static void prefork(void) {
    fill();
    pid_t worker = lasting();
    rest(100);
    for (int turn = 0; turn < 3; turn++) {
        pid_t pid = fork();
        if (pid == 0) {
            rest(80);
            _exit(0);
        }
        wait_for(pid);
        /* Until all is done that is done after a child. */
        for (int look = 0; look < 500 && children_but(worker); look++) {
            free(malloc(100));
            rest(10);
        }
    }
    int shared = 1;
    for (int look = 0; look < 150 && shared; look++) {
        shared = shared_pages() > pages * 9 / 10;
        rest(10);
    }
    printf("still shared: %d\n", shared);
    end(worker);
}

/* The thread that forks ends before its child. */
static void *fork_and_end(void *argument) {
    *(pid_t *)argument = lasting();
    rest(60);
    return 0;
}

static void forkers_end(void) {
    fill();
    for (int turn = 0; turn < 5; turn++) {
        pthread_t thread;
        pid_t pid = 0;
        pthread_create(&thread, 0, fork_and_end, &pid);
        pthread_join(thread, 0);
        write_all();
        rest(60);
        end(pid);
    }
    pid_t pid = lasting();
    rest(60);
    end(pid);
    printf("forkers have ended\n");
}

/* A daemon: two forks, all descriptors closed, another directory, another user. */
static void becomes_a_daemon(void) {
    fill();
    char place[] = "/tmp/quire-daemon-XXXXXX";
    int report[2];
    if (pipe(report) || !mkdtemp(place)) return;
    pid_t pid = fork();
    if (pid == 0) {
        rest(20);
        setsid();
        pid_t second = fork();
        if (second) _exit(second < 0);
        dup2(report[1], 9);
        for (int number = 0; number < 9; number++) close(number);
        close_range(10, ~0U, 0);
        rest(20);
        write_all();
        pid_t third = brief();
        int changed = getuid() ? 0 : chdir(place) || chroot(place) || setgid(65534) || setuid(65534);
        write_all();
        changed += wait_for(third);
        third = brief();
        write_all();
        changed += wait_for(third);
        struct stat facts;
        char line[80];
        int open_files = 0;
        for (int number = 0; number < 64; number++) open_files += !fstat(number, &facts);
        int count = snprintf(line, sizeof line, "daemon: changed %d, %d open\n", changed, open_files);
        _exit(write(9, line, (size_t)count) < 0);
    }
    close(report[1]);
    printf("first: %d\n", wait_for(pid));
    char text[200];
    ssize_t count;
    while ((count = read(report[0], text, sizeof text)) > 0) printf("%.*s", (int)count, text);
    rmdir(place);
}

/* No address space is left when the first child is made. */
static void no_room(void) {
    fill();
    struct rlimit limit = {1 << 20, RLIM_INFINITY}, before;
    getrlimit(RLIMIT_AS, &before);
    setrlimit(RLIMIT_AS, &limit);
    for (int turn = 0; turn < 3; turn++) {
        pid_t pid = fork();
        if (pid == 0) {
            rest(30);
            _exit(4);
        }
        printf("child: %d\n", wait_for(pid));
    }
    setrlimit(RLIMIT_AS, &before);
}

static int spawned(void *argument) {
    (void)argument;
    rest(20);
    return 6;
}

/* Other ways to make children while one that was forked lives. */
static void other_ways(void) {
    extern char **environ;
    fill();
    pid_t forked = lasting();
    for (int turn = 0; turn < 3; turn++) {
        pid_t pid = vfork();
        if (pid == 0) _exit(5);
        printf("vfork: %d\n", wait_for(pid));
        char *words[] = {self_path, "status", "7", 0};
        int error = posix_spawn(&pid, self_path, 0, 0, words, environ);
        printf("posix_spawn: %d %d\n", error, wait_for(pid));
        static char stack[65536];
        pid = clone(spawned, stack + sizeof stack, CLONE_VM | SIGCHLD, 0);
        printf("clone: %d\n", wait_for(pid));
        fflush(stdout);
        printf("system: %d\n", system("exit 3") >> 8);
        write_all();
    }
    end(forked);
}

/* For process.py: says that a child lives, and waits to be killed. */
static void stays(void) {
    fill();
    pid_t pid = lasting();
    rest(100);
    printf("%d\n", (int)pid);
    for (;;) rest(1000);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    self_path = words[0];
    setvbuf(stdout, 0, _IOLBF, 0);
    if (!strcmp(what, "counts")) counts();
    if (!strcmp(what, "namespaces")) namespaces();
    if (!strcmp(what, "waits")) waits();
    if (!strcmp(what, "filters")) filters();
    if (!strcmp(what, "becomes")) becomes();
    if (!strcmp(what, "became")) became(atoi(words[2]));
    if (!strcmp(what, "again")) again(count > 2 ? atoi(words[2]) : 0, count > 3 ? atoi(words[3]) : 0);
    if (!strcmp(what, "gives_up")) gives_up();
    if (!strcmp(what, "prefork")) prefork();
    if (!strcmp(what, "forkers")) forkers_end();
    if (!strcmp(what, "daemon")) becomes_a_daemon();
    if (!strcmp(what, "room")) no_room();
    if (!strcmp(what, "ways")) other_ways();
    if (!strcmp(what, "stays")) stays();
    if (!strcmp(what, "status")) return atoi(words[2]);
    return 0;
}
