// Command held keeps goroutines at known places, and prints Go's own traceback of all of them.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

var (
	kernel32 = syscall.NewLazyDLL("kernel32.dll")
	sleep    = kernel32.NewProc("Sleep")
	enum     = kernel32.NewProc("EnumResourceTypesW")
	locales  = kernel32.NewProc("EnumSystemLocalesW")
	sink     uint64
)

type shape interface{ area(n int) int }
type square struct{ side int }

//go:noinline
func (s square) area(n int) int {
	if n == 0 {
		sleep.Call(1 << 30)
		return 0
	}
	var big [600]byte
	big[n%600] = 1
	return s.area(n-1) + int(big[n%7]) + s.side
}

//go:noinline
func generic[T any](v T, f func(T)) { f(v) }

//go:noinline
func inWindows(wg *sync.WaitGroup) {
	wg.Done()
	var s shape = square{2}
	runtime.KeepAlive(s.area(5))
}

//go:noinline
func inCallback(wg *sync.WaitGroup) {
	cb := syscall.NewCallback(func(name uintptr) uintptr {
		wg.Done()
		sleep.Call(1 << 30)
		return 0
	})
	locales.Call(cb, 1)
}

//go:noinline
func spin(n uint64) uint64 {
	for {
		n = n*6364136223846793005 + 1442695040888963407
		n ^= work(n)
		sink = n
	}
}

//go:noinline
func work(n uint64) uint64 {
	var a [8]uint64
	for i := range a {
		a[i] = n >> uint(i)
	}
	return a[n&7] + leaf(n)
}

//go:noinline
func leaf(n uint64) uint64 { return n*3 + 1 }

func main() {
	var wg sync.WaitGroup
	wg.Add(2)
	go inWindows(&wg)
	go inCallback(&wg)
	var mu sync.Mutex
	mu.Lock()
	go func() { mu.Lock() }()
	ch := make(chan int)
	go generic(ch, func(c chan int) { <-c })
	go spin(7)
	wg.Wait()
	time.Sleep(500 * time.Millisecond)
	buffer := make([]byte, 1<<20)
	fmt.Printf("%s\n", buffer[:runtime.Stack(buffer, true)])
	fmt.Printf("pid %d at %p\n", os.Getpid(), unsafe.Pointer(&sink))
	os.Stdout.Sync()
	if len(os.Args) > 1 {
		panic("shown")
	}
	sleep.Call(1 << 30)
}
