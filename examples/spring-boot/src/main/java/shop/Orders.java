package shop;

import com.azure.spring.data.cosmos.repository.CosmosRepository;
import com.azure.spring.data.cosmos.repository.Query;
import java.util.List;
import org.springframework.data.repository.query.Param;

public interface Orders extends CosmosRepository<Order, String> {
    @Query("SELECT * FROM c WHERE c.customer = @customer ORDER BY c.at DESC OFFSET 0 LIMIT 20")
    List<Order> latest(@Param("customer") String customer);
}
