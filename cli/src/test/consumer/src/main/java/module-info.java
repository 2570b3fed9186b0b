/** A program that uses nccl4j as a module. */
module org.example.consumer {
  requires io.nccl4j.runtime;
}
