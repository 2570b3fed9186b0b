package io.nccl4j;

/**
 * One setting with its effective value and source.
 *
 * @param name the setting's name, for example {@code operation-timeout}
 * @param value the effective value with its unit
 * @param source {@code argument}, the name of the environment variable, or {@code default}
 */
public record Setting(String name, String value, String source) {}
