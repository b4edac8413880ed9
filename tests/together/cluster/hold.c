/* The only program in the image of workloads and sandboxes: it sleeps until a signal, or for a time. SIGALRM ends it
   with exit code 0. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void end(int number) { _exit(number == SIGALRM ? 0 : 143); }

int main(int count, char **words) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    signal(SIGALRM, end);
    if (count > 1) alarm((unsigned)atoi(words[1]));
    for (;;) pause();
}
